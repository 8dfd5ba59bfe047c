#include "service/http/event_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "service/http/http_error.h"
#include "service/http/json.h"
#include "service/http/openai_response.h"

namespace tidepool::service {

EventStream::EventStream(std::shared_ptr<HttpExchange> exchange, RequestKey key, size_t choices,
                         HttpHeaders headers)
    : exchange_(std::move(exchange)),
      key_(std::move(key)),
      headers_(std::move(headers)),
      position_(choices) {}

void EventStream::KeepAlive(Executor* loop, absl::Duration every) {
  loop_ = loop;
  comment_every_ = every;
  CommentLater();
}

void EventStream::CommentLater() {
  loop_->PostAfter(comment_every_, [weak = weak_from_this(), written = written_] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->exchange_->Post([self, written] { self->CommentIfSilent(written); });
  });
}

void EventStream::CommentIfSilent(int64_t written) {
  if (ended_) return;
  if (written == written_ && untaken_ == 0) WriteCounted(kSseComment, nullptr);
  CommentLater();
}

absl::Status EventStream::Advance(size_t choice, const v1::GenerateResponse& message) {
  position_.Take(choice, message);
  if (message.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return absl::OkStatus();
  if (!key_.resume.has_value() || !key_.resume->IsPast(choice, position_)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Last-Event-ID is ", key_.resume->Id(), ", and the response of choice ", choice,
                   " ends at ", position_.Id(), "; send an id of this stream"));
}

bool EventStream::Has(size_t choice) const {
  return key_.resume.has_value() && key_.resume->Covers(choice, position_);
}

void EventStream::Begin() {
  if (std::exchange(begun_, true)) return;
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = headers_;
  // X-Accel-Buffering tells proxies not to buffer the stream.
  head.headers.insert(head.headers.end(),
                      {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  exchange_->BeginStream(std::move(head));
}

void EventStream::Write(absl::string_view json, std::function<void()> taken) {
  WriteCounted(WithId(SseEvent(json)), std::move(taken));
}

void EventStream::WriteCounted(std::string bytes, std::function<void()> taken) {
  Begin();
  ++written_, ++untaken_;
  exchange_->Write(std::move(bytes), [self = shared_from_this(), taken = std::move(taken)] {
    --self->untaken_;
    if (taken) taken();
  });
}

void EventStream::WriteTail(StreamPosition::Tail tail, const std::string& event) {
  position_.TakeTail(tail);
  Begin();
  const bool has = key_.resume.has_value() && key_.resume->Covers(tail);
  if (!has) exchange_->Write(WithId(event), nullptr);
}

void EventStream::End() {
  ended_ = true;
  exchange_->EndStream();
}

bool EventStream::Fail(const absl::Status& status) {
  ended_ = true;
  if (!begun_) return false;
  // After an error, the stream ends without [DONE].
  exchange_->Write(WithId(SseEvent(DumpJson(ErrorJson(ToHttpError(status))))), nullptr);
  exchange_->EndStream();
  return true;
}

std::string EventStream::WithId(std::string event) const {
  if (key_.id.empty()) return event;
  return absl::StrCat("id: ", position_.Id(), "\n", event);
}

}  // namespace tidepool::service
