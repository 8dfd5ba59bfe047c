#include "service/front/named_request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

int64_t EndOf(const v1::GenerateResponse& message) {
  return message.position() + message.token_ids_size();
}

bool IsLast(const v1::GenerateResponse& message) {
  return message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
}

absl::Status FellBehind() {
  return absl::AbortedError(absl::StrCat(
      "another reader of this response is more than ", NamedRequest::kMaxBytes >> 20,
      " MiB ahead, and the next message is no longer kept; send the request again with "
      "resume_after"));
}

}  // namespace

NamedRequest::NamedRequest(Executor* loop, absl::Duration orphan_ttl, int64_t begin)
    : loop_(loop), orphan_ttl_(orphan_ttl), begin_(begin) {}

int64_t NamedRequest::end() const { return messages_.empty() ? 0 : EndOf(messages_.back()); }

int64_t NamedRequest::kept_from() const {
  return dropped_ == 0 || messages_.empty() ? 0 : messages_.front().position();
}

bool NamedRequest::Holds(int64_t after) const {
  // If messages were dropped, the prompt report was dropped, too, because it comes before position
  // 0.
  if (after == 0 && dropped_ > 0) return false;
  if (after == begin_ && dropped_ == 0) return true;
  if (!messages_.empty() && after == end()) return true;
  return std::any_of(messages_.begin(), messages_.end(),
                     [after](const auto& message) { return message.position() == after; });
}

std::shared_ptr<ResponseStream> NamedRequest::Read(int64_t after, GenerationSink* sink) {
  const auto reader = std::make_shared<Reader>(shared_from_this(), after, sink);
  readers_.push_back(reader);
  loop_->Post([reader] { reader->Advance(); });
  return reader;
}

void NamedRequest::Cancel(const absl::Status& why) {
  if (const auto generation = generation_.lock()) generation->Cancel(why);
}

void NamedRequest::EndReaders(const absl::Status& status) {
  const auto readers = readers_;
  for (const auto& weak : readers) {
    if (const auto reader = weak.lock()) reader->Cancel(status);
  }
}

void NamedRequest::Write(v1::GenerateResponse response) {
  bytes_ += response.ByteSizeLong();
  messages_.push_back(std::move(response));
  while (bytes_ > kMaxBytes && messages_.size() > 1) {
    bytes_ -= messages_.front().ByteSizeLong();
    messages_.pop_front();
    ++dropped_;
  }
  // The response is complete, so the generation does not have to wait for readers any more.
  if (IsLast(messages_.back())) OnTaken(made());
  Advance();
}

void NamedRequest::Finish(absl::Status status) {
  status_ = std::move(status);
  Advance();
}

void NamedRequest::Advance() {
  const auto readers = readers_;
  for (const auto& weak : readers) {
    if (const auto reader = weak.lock()) reader->Advance();
  }
}

void NamedRequest::OnTaken(size_t count) {
  if (count <= taken_) return;
  taken_ = count;
  // Post the task, because the generation may be in the middle of a call to this object.
  loop_->Post([weak = generation_] {
    if (const auto generation = weak.lock()) generation->OnWritten();
  });
}

void NamedRequest::OnReaderGone(const Reader* reader) {
  readers_.erase(std::remove_if(readers_.begin(), readers_.end(),
                                [reader](const auto& weak) {
                                  const auto one = weak.lock();
                                  return one == nullptr || one.get() == reader;
                                }),
                 readers_.end());
  if (!readers_.empty() || finished()) return;
  loop_->PostAfter(orphan_ttl_, [weak = weak_from_this(), departures = ++departures_] {
    const auto self = weak.lock();
    if (self == nullptr || !self->readers_.empty() || self->departures_ != departures) return;
    self->Cancel(absl::CancelledError("the client disconnected and did not return in time"));
  });
}

NamedRequest::Reader::~Reader() {
  if (sink_ != nullptr) request_->OnReaderGone(this);
}

void NamedRequest::Reader::OnWritten() {
  if (sink_ == nullptr) return;
  writing_ = false;
  request_->OnTaken(next_);
  Advance();
}

void NamedRequest::Reader::Cancel(absl::Status why) { End(std::move(why)); }

void NamedRequest::Reader::Advance() {
  if (sink_ == nullptr) return;
  // After a failure, end at once. Do not wait until the client has received the last message.
  if (request_->finished() && !request_->status_->ok()) return End(*request_->status_);
  if (writing_) return;
  if (next_ < request_->dropped_) {
    // Several messages about the prompt may come before the first output token.
    const bool of_prompt = after_ == 0 && position_ <= 0;
    if (of_prompt || request_->kept_from() > std::max(after_, position_)) return End(FellBehind());
    next_ = request_->dropped_;
  }
  while (next_ < request_->made()) {
    const v1::GenerateResponse& message = request_->messages_[next_++ - request_->dropped_];
    const bool had =
        message.token_ids_size() > 0 ? EndOf(message) <= after_ : message.position() < after_;
    if (had && !IsLast(message)) {
      request_->OnTaken(next_);
      continue;
    }
    if (EndOf(message) < after_) break;  // the response has ended before `after_`
    v1::GenerateResponse response = message;
    if (had) {
      // The client knows these tokens, but not how the response ended.
      response.set_position(after_);
      response.clear_text();
      response.clear_token_ids();
      response.clear_logprobs();
      response.clear_prompt_logprobs();
      response.clear_prompt_token_ids();
      response.clear_prompt_text();
    }
    writing_ = true;
    position_ = EndOf(response);
    return sink_->Write(std::move(response));
  }
  if (!request_->finished()) return;
  absl::Status status = *request_->status_;
  if (status.ok() && request_->end() < after_) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "resume_after is ", after_, ", but the whole response has ", request_->end(), " tokens"));
  }
  End(std::move(status));
}

void NamedRequest::Reader::End(absl::Status status) {
  if (sink_ == nullptr) return;
  const auto self = shared_from_this();
  GenerationSink* sink = std::exchange(sink_, nullptr);
  request_->OnReaderGone(this);
  sink->Finish(std::move(status));
}

}  // namespace tidepool::service
