// The part of Generation that resumes a turn from its session's log.
#include <algorithm>
#include <utility>

#include "engine/sampling/request.h"
#include "service/front/convert_sessions.h"
#include "service/front/generation.h"
#include "service/grpc/convert.h"
#include "service/store/store_errors.h"

namespace tidepool::service {

void Generation::FindReceivedText() {
  const LoggedTurn& logged = *turn_->logged();
  const auto& prompt = prepared_.token_ids();
  if (!std::equal(prompt.begin(), prompt.end(), logged.prompt_ids.begin(),
                  logged.prompt_ids.end())) {
    // If the log has a digest of the request, the store has compared it. So the request is the
    // same, and only its rendering differs.
    if (logged.turn.body_digest.empty()) return End(AnotherRequest(input_.request.request_id()));
    TakeLoggedPrompt();
  }
  const int64_t received = static_cast<int64_t>(input_.request.resume_after());
  if (received < logged.output_size() && input_.request.logprobs()) {
    return End(absl::FailedPreconditionError(
        "the logprobs of earlier tokens are not stored; resume without logprobs, or read the "
        "tokens with GetSession"));
  }
  if (received == 0 || received >= logged.output_size()) return Resume("");
  if (!placement_.TakeAnyWorker(StreamStep::kFindReceivedText)) return;
  v1::DetokenizeRequest request;
  request.set_model(model_.name());
  request.set_keep_spaces(true);
  // The logged text contains the names of markers.
  request.set_keep_special(!prepared_.marker_token_ids().empty());
  request.mutable_token_ids()->Assign(logged.output_ids.begin(),
                                      logged.output_ids.begin() + received);
  const auto resume = [weak = weak_from_this(), attempt = placement_.attempt()](
                          absl::StatusOr<v1::DetokenizeResponse> text) {
    const auto self = weak.lock();
    if (self == nullptr || self->sink_ == nullptr || self->placement_.attempt() != attempt) return;
    self->placement_.OnAnswered();
    if (text.ok()) return self->Resume(text->text());
    if (!IsWorkerFailure(text.status())) return self->End(text.status());
    self->placement_.Retry(text.status(), EndedBy::kAway, StreamStep::kFindReceivedText);
  };
  placement_.worker().link->TextOf(std::move(request), input_.principal, input_.deadline, resume);
}

void Generation::TakeLoggedPrompt() {
  const std::vector<int32_t>& prompt = turn_->logged()->prompt_ids;
  prepared_.mutable_token_ids()->Assign(prompt.begin(), prompt.end());
  // these hashes are for the new rendering, not for the logged prompt
  prepared_.clear_block_hashes();
  const int64_t room = model_.context_length() - static_cast<int64_t>(prompt.size());
  prepared_.mutable_stopping()->set_max_tokens(
      engine::LimitMaxTokens(AskedMaxTokens(input_.request.stopping()), room));
}

void Generation::Resume(const std::string& received_text) {
  const LoggedTurn& logged = *turn_->logged();
  const v1::GenerateRequest& request = input_.request;
  const int64_t received = static_cast<int64_t>(request.resume_after());
  output_ids_ = logged.output_ids;
  placement_.BeginAttempts();
  v1::GenerateResponse response;
  response.set_request_id(request.request_id());
  response.set_position(std::min(received, logged.output_size()));
  if (received < logged.output_size()) {
    response.mutable_token_ids()->Assign(output_ids_.begin() + received, output_ids_.end());
    response.set_text(UnreceivedText(logged.turn.response, received_text, request.stopping()));
  }
  if (!logged.running) {
    response.set_finish_reason(ToProto(logged.turn.finish));
    response.mutable_usage()->set_prompt_tokens(prepared_.token_ids_size());
    response.mutable_usage()->set_completion_tokens(logged.output_size());
    response.mutable_usage()->set_numerics_changed(numerics_.changed());
    finish_received_ = true;
  }
  if (events_.has_value()) {
    const std::string& logged_text = logged.turn.response;
    events_->Skip(
        absl::string_view(logged_text).substr(0, logged_text.size() - response.text().size()));
    events_->AddTo(&response);
  }
  window_.SetUntaken(response.token_ids_size());
  if (finish_received_ || response.token_ids_size() > 0) {
    queue_.Push(std::move(response), /*logged=*/true);
  }
  SendNext();
  if (finish_received_) return;
  if (absl::Status status = LimitSession(); !status.ok()) return End(std::move(status));
  placement_.Try(StreamStep::kRun);
}

}  // namespace tidepool::service
