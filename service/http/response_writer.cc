#include "service/http/response_writer.h"

#include <boost/asio/write.hpp>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tidepool::service {

void ResponseWriter::Begin(ResponseFraming framing) {
  framing_ = std::move(framing);
  complete_ = false;
}

void ResponseWriter::Answer(HttpResponse response, std::shared_ptr<Owner> owner) {
  std::optional<int64_t> length;
  if (response.status != 204) length = static_cast<int64_t>(response.body.size());
  pending_ = ResponseHeadText(response, framing_, length, absl::Now());
  if (!framing_.head_only) pending_ += response.body;
  pending_taken_.push_back([held = std::move(response.held)] {});
  complete_ = true;
  StartWrite(std::move(owner));
}

void ResponseWriter::BeginStream(const HttpResponse& head, std::shared_ptr<Owner> owner) {
  framing_.chunked = !framing_.http_1_0;
  // HTTP/1.0 has no chunks. So the body ends when the connection is closed.
  if (framing_.http_1_0) framing_.keep_alive = false;
  pending_ = ResponseHeadText(head, framing_, std::nullopt, absl::Now());
  StartWrite(std::move(owner));
}

void ResponseWriter::Write(absl::string_view bytes, std::function<void()> taken,
                           std::shared_ptr<Owner> owner) {
  if (!bytes.empty()) {
    if (framing_.chunked) {
      pending_ += BodyChunk(bytes);
    } else {
      absl::StrAppend(&pending_, bytes);
    }
  }
  pending_taken_.push_back(std::move(taken));
  StartWrite(std::move(owner));
}

void ResponseWriter::EndStream(std::shared_ptr<Owner> owner) {
  if (framing_.chunked) pending_ += kLastChunk;
  complete_ = true;
  StartWrite(std::move(owner));
}

void ResponseWriter::Stop() {
  stopped_ = true;
  writing_taken_.clear();
  pending_taken_.clear();
  pending_.clear();
}

void ResponseWriter::StartWrite(std::shared_ptr<Owner> owner) {
  if (write_running_ || stopped_) return;
  if (pending_.empty() && pending_taken_.empty()) {
    if (!std::exchange(complete_, false)) return;
    writing_ = std::string();
    return owner->OnSent();
  }
  write_running_ = true;
  writing_ = std::exchange(pending_, "");
  writing_taken_ = std::exchange(pending_taken_, {});
  deadline_->Set(write_timeout_, [owner] { owner->OnDisconnect(); });
  boost::asio::async_write(
      *socket_, boost::asio::buffer(writing_),
      [this, owner = std::move(owner)](const HttpSocket::Error& error, size_t) mutable {
        OnWrote(std::move(owner), error);
      });
}

void ResponseWriter::OnWrote(std::shared_ptr<Owner> owner, const HttpSocket::Error& error) {
  write_running_ = false;
  if (stopped_) return;
  if (error) return owner->OnDisconnect();
  deadline_->Clear();
  for (const auto& taken : std::exchange(writing_taken_, {})) {
    if (taken) taken();
  }
  StartWrite(std::move(owner));
}

}  // namespace tidepool::service
