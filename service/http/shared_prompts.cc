#include "service/http/shared_prompts.h"

#include <utility>

namespace tidepool::service {
namespace {

// Returns whether the message has tokens or the end of the response. Earlier messages are about the
// prompt.
bool IsOfResponse(const v1::GenerateResponse& message) {
  return message.token_ids_size() > 0 || message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
}

}  // namespace

bool SharedPrompts::Hold(int64_t choice, v1::GenerateResponse* message) {
  if (!shares_ || IsFirst(choice) || !IsOfResponse(*message)) return false;
  Prompt& prompt = prompts_[choice / n_];
  if (prompt.complete) return false;
  message->set_index(static_cast<int32_t>(choice));
  prompt.held.push_back(std::move(*message));
  return true;
}

std::vector<v1::GenerateResponse> SharedPrompts::Release(int64_t choice,
                                                         const v1::GenerateResponse& message) {
  if (!IsFirst(choice) || !IsOfResponse(message)) return {};
  Prompt& prompt = prompts_[choice / n_];
  prompt.complete = true;
  return std::exchange(prompt.held, {});
}

}  // namespace tidepool::service
