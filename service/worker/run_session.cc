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
      if (started_) return Finish(absl::InvalidArgumentError("start was sent twice"));
      return Start(request.start(), deadline);
    case worker::v1::RunRequest::kCredit:
      if (!started_) break;
      if (request.credit() < 0) {
        return Finish(absl::InvalidArgumentError(
            absl::StrCat("credit is ", request.credit(), "; accepted: 0 or more")));
      }
      return AddCredit(request.credit());
    case worker::v1::RunRequest::kCancel:
      return Cancel();
    case worker::v1::RunRequest::MESSAGE_NOT_SET:
      break;
  }
  OnRequestsEnd();
}

void RunSession::OnRequestsEnd() {
  if (transport_ == nullptr || started_) return;
  Finish(absl::InvalidArgumentError("the first message of Run must have start"));
}

void RunSession::Start(const worker::v1::Start& start, absl::Duration deadline) {
  started_ = true;
  attempt_ = start.attempt();
  log_line_.OnStart(start);
  const WorkerModel& model = *context_.model;
  const std::string wanted =
      ModelIdentity(start.prepared().model_digest(), start.prepared().model_content_digest());
  const std::string own = ModelIdentity(model.digest, model.content_digest);
  if (!SameModel(wanted, own)) {
    return Finish(absl::FailedPreconditionError(absl::StrCat(
        "the request was prepared for model ", wanted, ", but this worker serves ", own)));
  }
  absl::StatusOr<engine::GenerationRequest> request = FromProto(start, deadline);
  if (!request.ok()) return Finish(request.status());
  position_ = start.output_token_ids_size();
  max_tokens_ = start.prepared().stopping().max_tokens();
  reasoning_.OnStart(start);
  started_at_ = context_.clock->Monotonic();
  if (const OutputWork work = WorkFor(model, start); work != OutputWork::kNone) {
    return SubmitConstrained(start, work, *std::move(request));
  }
  OnStream(context_.engine->Submit(*std::move(request)));
}

void RunSession::SubmitConstrained(const worker::v1::Start& start, OutputWork work,
                                   engine::GenerationRequest request) {
  // Copy only the fields that ConstrainOutput reads.
  auto rules = std::make_shared<worker::v1::Start>();
  rules->mutable_prepared()->set_in_reasoning(start.prepared().in_reasoning());
  if (start.has_constraint()) *rules->mutable_constraint() = start.constraint();
  if (start.has_chat()) *rules->mutable_chat() = start.chat();
  auto asked = std::make_shared<engine::GenerationRequest>(std::move(request));
  // Runs have a queue of their own, so that a run does not wait for all prompts of its principal.
  const std::string line = absl::StrCat("runs of ", asked->principal);
  context_.constrain(line, work,
                     [model = context_.model, engine = context_.engine, loop = context_.loop,
                      weak = weak_from_this(), rules, asked] {
                       if (weak.expired()) return;
                       absl::Status constrained = ConstrainOutput(*model, *rules, asked.get());
                       auto stream = std::make_shared<NewStream>(
                           constrained.ok() ? engine->Submit(std::move(*asked))
                                            : NewStream(std::move(constrained)));
                       loop->Post([weak, stream] {
                         if (const auto session = weak.lock()) {
                           session->OnStream(std::move(*stream));
                         }
                       });
                     });
}

void RunSession::OnStream(NewStream stream) {
  if (transport_ == nullptr) return;
  if (!stream.ok()) return Finish(stream.status());
  stream_ = *std::move(stream);
  stream_->AddCredit(std::exchange(early_credit_, 0));
  // The engine's step thread only posts a task, so a slow stream never delays it.
  stream_->OnReady([loop = context_.loop, weak = weak_from_this()] {
    loop->Post([weak] {
      if (const auto session = weak.lock()) session->Pump();
    });
  });
  migration_.OnStart(started_at_, position_, max_tokens_);
  if (migration_.due()) Pump();
}

void RunSession::AddCredit(int64_t tokens) {
  if (stream_ == nullptr) {
    early_credit_ += tokens;
  } else {
    stream_->AddCredit(tokens);
  }
}

void RunSession::OnWritten() {
  writing_ = false;
  if (last_written_) return Finish(absl::OkStatus());
  if (giving_up_) return GiveUp();
  Pump();
}

void RunSession::OfferMove(absl::Duration end) {
  migration_.OnWorkerEnd(context_.clock->Monotonic(), end, position_);
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
  ToProto(**chunk, *context_.model->tokenizer, &response);
  reasoning_.Add((*chunk)->token_ids);
  if (response.has_usage()) response.mutable_usage()->set_reasoning_tokens(reasoning_.tokens());
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
