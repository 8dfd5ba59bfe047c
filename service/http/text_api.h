// Converts text calls over HTTP to Tidepool's requests and responses. The formats are vLLM's
// (https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html#tokenizer-api) and
// llama.cpp's (/apply-template). docs/http.md lists the fields for users.
#ifndef TIDEPOOL_SERVICE_HTTP_TEXT_API_H_
#define TIDEPOOL_SERVICE_HTTP_TEXT_API_H_

#include "absl/status/statusor.h"
#include "service/http/field_recorder.h"
#include "service/http/json.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// INVALID_ARGUMENT names the field. If `recorder` is set, it records each field that is read.

// {"prompt"} or {"messages"} > {"tokens", "count", "max_model_len", "token_strs"}.
absl::StatusOr<v1::TokenizeRequest> ParseTokenizeBody(const Json& body,
                                                      FieldRecorder* recorder = nullptr);
Json TokenizeJson(const v1::TokenizeResponse& response);

// {"tokens"} > {"prompt"}, with control tokens as their names.
absl::StatusOr<v1::DetokenizeRequest> ParseDetokenizeBody(const Json& body,
                                                          FieldRecorder* recorder = nullptr);
Json DetokenizeJson(const v1::DetokenizeResponse& response);

// {"messages"} > {"prompt"}.
absl::StatusOr<v1::TokenizeRequest> ParseApplyTemplateBody(const Json& body,
                                                           FieldRecorder* recorder = nullptr);
Json ApplyTemplateJson(const v1::TokenizeResponse& response);

// vLLM's description of its tokenizer, with the fields that clients such as lm-eval read.
v1::TokenizeRequest TokenizerInfoRequest();
Json TokenizerInfoJson(const v1::TokenizeResponse& response);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_TEXT_API_H_
