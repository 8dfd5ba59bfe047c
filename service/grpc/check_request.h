// Checks of requests. Thread-safe.
#ifndef TIDEPOOL_SERVICE_GRPC_CHECK_REQUEST_H_
#define TIDEPOOL_SERVICE_GRPC_CHECK_REQUEST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Checks everything in a request that does not need its model. INVALID_ARGUMENT names the field and
// its limit; UNIMPLEMENTED names a field that is not supported yet.
absl::Status CheckGenerateRequest(const v1::GenerateRequest& request);

// Maximum number of responses of one request.
inline constexpr int32_t kMaxChoices = 128;

// Value of PrepareResponse.understands for this release. 1: prompt_logprobs, echo, return_progress,
// min_tokens, logit_bias_text, add_generation_prompt, continue_final_message, reasoning_content.
inline constexpr int32_t kUnderstands = 1;
// UNIMPLEMENTED names a field that a worker with this `understands` value would ignore.
absl::Status CheckUnderstood(const v1::GenerateRequest& request, int32_t understands);

// Checks a conversation: messages, roles, texts, JSON. INVALID_ARGUMENT names the field.
absl::Status CheckChat(const v1::Chat& chat);

// Accepts 1 to 128 letters, digits, '-', '_', '.' or ':'. Otherwise INVALID_ARGUMENT.
absl::Status CheckSessionId(absl::string_view session_id);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_CHECK_REQUEST_H_
