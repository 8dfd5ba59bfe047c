#include "service/front/prompt_report.h"

#include "absl/strings/str_cat.h"

namespace tidepool::service {

PromptReport::PromptReport(const v1::GenerateRequest& request)
    : echo_(request.echo()),
      progress_(request.return_progress()),
      top_(request.has_prompt_logprobs() ? std::optional<int32_t>(request.prompt_logprobs())
                                         : std::nullopt) {}

std::optional<v1::GenerateResponse> PromptReport::Echo(
    const worker::v1::PrepareResponse& prepared) const {
  if (!echo_) return std::nullopt;
  v1::GenerateResponse response;
  response.set_prompt_text(prepared.prompt_text());
  *response.mutable_prompt_token_ids() = prepared.token_ids();
  return response;
}

void PromptReport::Fill(worker::v1::Start* start) const {
  start->set_return_progress(progress_);
  if (!top_.has_value()) return;
  start->set_prompt_logprobs(*top_);
  start->set_prompt_logprobs_from(received_);
}

absl::Status PromptReport::Take(const worker::v1::RunResponse& response, int64_t prompt_tokens,
                                absl::string_view worker) {
  const int64_t count = response.prompt_logprobs_size();
  if (count > 0 &&
      (response.prompt_position() != received_ || received_ + count > Expected(prompt_tokens))) {
    return absl::InternalError(
        absl::StrCat("worker ", worker, " reported ", count, " prompt tokens from position ",
                     response.prompt_position(), ", expected position ", received_));
  }
  received_ += count;
  const bool answers =
      response.token_ids_size() > 0 || response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  if (!answers || received_ == Expected(prompt_tokens)) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("prompt_logprobs is not supported by worker ",
                                               worker, ", which has an older release; upgrade it"));
}

bool IsProgressOnly(const v1::GenerateResponse& response) {
  return response.has_progress() && response.token_ids().empty() && response.text().empty() &&
         response.finish_reason() == v1::FINISH_REASON_UNSPECIFIED;
}

}  // namespace tidepool::service
