// Checks of requests. All functions are thread-safe.
#ifndef TIDEPOOL_SERVICE_GRPC_CHECK_REQUEST_H_
#define TIDEPOOL_SERVICE_GRPC_CHECK_REQUEST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Checks everything in a request that can be checked without the model. INVALID_ARGUMENT names the
// field and its limit. UNIMPLEMENTED names a field that is not supported yet.
absl::Status CheckGenerateRequest(const v1::GenerateRequest& request);

// The maximum number of responses (choices) of one request.
inline constexpr int32_t kMaxChoices = 128;

// A worker reports in WatchResponse and PrepareResponse which fields it supports (`understands`).
// This constant is the value of this release. 1 means that the worker supports prompt_logprobs,
// echo, return_progress, min_tokens, logit_bias_text, add_generation_prompt, continue_final_message
// and reasoning_content. 2 means that it also supports constraints. 3 means that it also supports
// typical_p, top_n_sigma, DRY, XTC, bad_words, allowed_token_ids, tool_choice, parallel_tool_calls,
// strict tools and thinking_budget_tokens. 4 means that it also supports processed_logprobs.
inline constexpr int32_t kUnderstands = 4;
// Returns the smallest `understands` value with which a worker ignores no field of the request.
// Takes time in proportion to the size of the request.
int32_t NeededToUnderstand(const v1::GenerateRequest& request);
// UNIMPLEMENTED if the request has a field that a worker with this `understands` value would
// ignore. The message names the field.
absl::Status CheckUnderstood(const v1::GenerateRequest& request, int32_t understands);

// Checks the messages, roles, texts and JSON of a conversation. INVALID_ARGUMENT names the field.
absl::Status CheckChat(const v1::Chat& chat);

// Accepts 1 to 128 characters: letters, digits, '-', '_', '.' and ':'. Otherwise INVALID_ARGUMENT.
absl::Status CheckSessionId(absl::string_view session_id);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_CHECK_REQUEST_H_
