#include "service/worker/run_session.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "service/base/model_identity.h"
#include "service/grpc/convert.h"
#include "service/worker/output_rules.h"

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
  attempt_ = start.attempt();
  log_line_.OnStart(start);
  const std::string wanted =
      ModelIdentity(start.prepared().model_digest(), start.prepared().model_content_digest());
  const std::string own = ModelIdentity(model_->digest, model_->content_digest);
  if (!SameModel(wanted, own)) {
    return Finish(absl::FailedPreconditionError(absl::StrCat(
        "the request was prepared for model ", wanted, ", but this worker serves ", own)));
  }
  absl::StatusOr<engine::GenerationRequest> request = FromProto(start, deadline);
  if (!request.ok()) return Finish(request.status());
  if (absl::Status status = ConstrainOutput(*model_, start, &*request); !status.ok()) {
    return Finish(std::move(status));
  }
  position_ = start.output_token_ids_size();
  const absl::Duration started_at = clock_->Monotonic();
  absl::StatusOr<std::unique_ptr<engine::Stream>> stream = engine_->Submit(*std::move(request));
  if (!stream.ok()) return Finish(stream.status());
  stream_ = *std::move(stream);
  // The engine's step thread only posts a task, so a slow stream never delays it.
  stream_->OnReady([loop = loop_, weak = weak_from_this()] {
    loop->Post([weak] {
      if (const auto session = weak.lock()) session->Pump();
    });
  });
  migration_.OnStart(started_at, position_, start.prepared().stopping().max_tokens());
  if (migration_.due()) Pump();
}

void RunSession::OnWritten() {
  writing_ = false;
  if (last_written_) return Finish(absl::OkStatus());
  if (giving_up_) return GiveUp();
  Pump();
}

void RunSession::OfferMove(absl::Duration end) {
  migration_.OnWorkerEnd(clock_->Monotonic(), end, position_);
  if (migration_.due()) Pump();
}

void RunSession::GiveUp() {
  giving_up_ = true;
  if (!writing_) Finish(absl::UnavailableError("the worker is shutting down"));
}

void RunSession::Pump() {
  if (transport_ == nullptr || stream_ == nullptr || writing_) return;
  if (migration_.TakeDue()) {
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
  log_line_.OnUsage((*chunk)->usage);
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
  log_line_.OnEnd(status);
  transport->Finish(std::move(status));
}

}  // namespace tidepool::service
