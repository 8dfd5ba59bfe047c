#include "service/worker/run_session.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/base/model_identity.h"
#include "service/grpc/convert.h"

namespace tidepool::service {

void RunSession::OnRequest(const worker::v1::RunRequest& request, absl::Duration deadline) {
  if (transport_ == nullptr) return;
  switch (request.message_case()) {
    case worker::v1::RunRequest::kStart:
      if (stream_ != nullptr) return Finish(absl::InvalidArgumentError("start was sent twice"));
      return Start(request.start(), deadline);
    case worker::v1::RunRequest::kCredit:
      if (stream_ == nullptr) break;
      if (request.credit() < 0) {
        return Finish(absl::InvalidArgumentError(
            absl::StrCat("credit is ", request.credit(), "; accepted: 0 or more")));
      }
      return stream_->AddCredit(request.credit());
    case worker::v1::RunRequest::kCancel:
      return Cancel();
    case worker::v1::RunRequest::MESSAGE_NOT_SET:
      break;
  }
  OnRequestsEnd();
}

void RunSession::OnRequestsEnd() {
  if (transport_ == nullptr || stream_ != nullptr) return;
  Finish(absl::InvalidArgumentError("the first message of Run must have start"));
}

void RunSession::Start(const worker::v1::Start& start, absl::Duration deadline) {
  started_ = true;
  attempt_ = start.attempt();
  request_id_ = start.request_id();
  const worker::v1::Caller& caller = start.caller();
  principal_ = caller.principal();
  span_ = BeginSpan(ParseTraceContext(caller.traceparent(), caller.tracestate()));
  const std::string wanted =
      ModelIdentity(start.prepared().model_digest(), start.prepared().model_content_digest());
  const std::string own = ModelIdentity(model_->digest, model_->content_digest);
  if (!SameModel(wanted, own)) {
    return Finish(absl::FailedPreconditionError(absl::StrCat(
        "the request was prepared for model ", wanted, ", but this worker serves ", own)));
  }
  absl::StatusOr<engine::GenerationRequest> request = FromProto(start, deadline);
  if (!request.ok()) return Finish(request.status());
  first_position_ = position_ = start.output_token_ids_size();
  max_tokens_ = start.prepared().stopping().max_tokens();
  started_at_ = clock_->Monotonic();
  absl::StatusOr<std::unique_ptr<engine::Stream>> stream = engine_->Submit(*std::move(request));
  if (!stream.ok()) return Finish(stream.status());
  stream_ = *std::move(stream);
  // The step thread only posts a task: it never waits for a stream.
  stream_->OnReady([loop = loop_, weak = weak_from_this()] {
    loop->Post([weak] {
      if (const auto session = weak.lock()) session->Pump();
    });
  });
  if (worker_end_.has_value()) OfferMove(*worker_end_);
}

void RunSession::OnWritten() {
  writing_ = false;
  if (last_written_) return Finish(absl::OkStatus());
  if (giving_up_) return GiveUp();
  Pump();
}

void RunSession::OfferMove(absl::Duration end) {
  worker_end_ = end;  // for a start that arrives later
  if (stream_ == nullptr || EndsBefore(end)) return;
  move_due_ = true;
  Pump();
}

bool RunSession::EndsBefore(absl::Duration end) const {
  const int64_t made = position_ - first_position_;
  if (made == 0) return false;
  const absl::Duration now = clock_->Monotonic();
  const absl::Duration pace = (now - started_at_) / made;
  return now + pace * (max_tokens_ - position_) <= end;
}

void RunSession::GiveUp() {
  giving_up_ = true;
  if (!writing_) Finish(absl::UnavailableError("the worker is shutting down"));
}

void RunSession::Pump() {
  if (transport_ == nullptr || stream_ == nullptr || writing_) return;
  if (std::exchange(move_due_, false)) {
    worker::v1::RunResponse response;
    response.set_position(position_);
    response.set_migrate(true);
    return Write(std::move(response));
  }
  std::optional<absl::StatusOr<engine::StreamChunk>> chunk = stream_->TryNext();
  if (!chunk.has_value()) return;
  if (!chunk->ok()) return Finish(chunk->status());
  worker::v1::RunResponse response;
  ToProto(**chunk, *model_->tokenizer, &response);
  usage_ = (*chunk)->usage;
  position_ += response.token_ids_size();
  last_written_ = (*chunk)->finish.has_value();
  Write(std::move(response));
}

void RunSession::Write(worker::v1::RunResponse response) {
  response.set_attempt(attempt_);
  writing_ = true;
  transport_->Write(std::move(response));
}

void RunSession::Cancel() {
  if (transport_ == nullptr) return;
  Finish(absl::CancelledError("cancelled"));
}

void RunSession::Abandon() {
  transport_ = nullptr;
  stream_.reset();
}

void RunSession::Finish(absl::Status status) {
  if (transport_ == nullptr) return;
  RunTransport* transport = std::exchange(transport_, nullptr);
  stream_.reset();
  if (started_ && log_ != nullptr) LogEnd(status);
  transport->Finish(std::move(status));
}

void RunSession::LogEnd(const absl::Status& status) const {
  std::vector<LogField> fields = {{"request_id", request_id_}};
  const auto add = [&fields](absl::string_view name, absl::string_view text) {
    if (!text.empty()) fields.push_back({name, text});
  };
  add("principal", principal_);
  fields.push_back({"attempt", int64_t{attempt_}});
  add("model", model_->name);
  fields.insert(fields.end(), {{"prompt_tokens", usage_.prompt_tokens},
                               {"cached_tokens", usage_.cached_tokens},
                               {"output_tokens", usage_.completion_tokens},
                               {"queue_seconds", absl::ToDoubleSeconds(usage_.queue_time)},
                               {"prefill_seconds", absl::ToDoubleSeconds(usage_.prefill_time)},
                               {"decode_seconds", absl::ToDoubleSeconds(usage_.decode_time)}});
  const std::string code = absl::StatusCodeToString(status.code());
  add("code", code);
  // Other messages are safe to log, but that of INVALID_ARGUMENT may quote the request.
  if (!absl::IsInvalidArgument(status)) add("error", status.message());
  add("trace_id", span_.context.trace_id);
  add("span_id", span_.context.span_id);
  add("parent_span_id", span_.parent_span);
  (*log_)(LogLevel::kInfo, "run ended", fields);
}

}  // namespace tidepool::service
