// Converts the HTTP calls that tokenise, detokenise or render templates to Tidepool's requests, and
// converts the responses back. The formats are vLLM's
// (https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html#tokenizer-api) and, for
// /apply-template, llama.cpp's. docs/http.md lists the fields for users.
#ifndef TIDEPOOL_SERVICE_HTTP_TEXT_API_H_
#define TIDEPOOL_SERVICE_HTTP_TEXT_API_H_

#include "absl/status/statusor.h"
#include "service/http/field_recorder.h"
#include "service/http/json.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// In all parsers below, the error INVALID_ARGUMENT names the field. If `recorder` is set, it
// records each field that is read.

// Request: {"prompt"} or {"messages"}. Response: {"tokens", "count", "max_model_len",
// "token_strs"}.
absl::StatusOr<v1::TokenizeRequest> ParseTokenizeBody(const Json& body,
                                                      FieldRecorder* recorder = nullptr);
Json TokenizeJson(const v1::TokenizeResponse& response);

// Request: {"tokens"}. Response: {"prompt"}, in which control tokens are written as their names.
absl::StatusOr<v1::DetokenizeRequest> ParseDetokenizeBody(const Json& body,
                                                          FieldRecorder* recorder = nullptr);
Json DetokenizeJson(const v1::DetokenizeResponse& response);

// Request: {"messages"}. Response: {"prompt"}.
absl::StatusOr<v1::TokenizeRequest> ParseApplyTemplateBody(const Json& body,
                                                           FieldRecorder* recorder = nullptr);
Json ApplyTemplateJson(const v1::TokenizeResponse& response);

// The response is vLLM's description of the tokenizer, with the fields that clients such as lm-eval
// read.
v1::TokenizeRequest TokenizerInfoRequest();
Json TokenizerInfoJson(const v1::TokenizeResponse& response);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_TEXT_API_H_
