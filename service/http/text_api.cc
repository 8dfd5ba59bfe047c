#include "service/http/text_api.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "service/grpc/check_request.h"
#include "service/http/chat_messages.h"
#include "service/http/json_fields.h"

namespace tidepool::service {
namespace {

Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

// Returns a token's text as JSON. The vocabulary comes from a file, so a token may be invalid
// UTF-8.
Json WordJson(const std::string& bytes) {
  std::string text;
  const std::string tail = base::AppendUtf8Lossy(bytes, &text);
  if (!tail.empty()) absl::StrAppend(&text, base::kReplacementCharacter);
  return text;
}

}  // namespace

absl::StatusOr<v1::TokenizeRequest> ParseTokenizeBody(const Json& body, FieldRecorder* recorder) {
  v1::TokenizeRequest request;
  JsonFields fields(body, "", recorder);
  if (const auto model = fields.String("model")) request.set_model(*model);
  const bool chat = fields.Find("messages", {"array"}) != nullptr;
  if (chat) {
    ReadChat(&fields, request.mutable_chat());
    if (fields.Find("prompt") != nullptr) {
      fields.Fail("prompt", "and messages are both set; send one of them");
    }
  } else if (const auto prompt = fields.String("prompt")) {
    request.set_text(*prompt);
  } else {
    fields.Missing("prompt", "is missing; send prompt or messages");
  }
  // The default is the same as in Hugging Face's tokenizers.
  request.set_parse_special(true);
  // A chat template adds special tokens itself.
  request.set_add_special(fields.Bool("add_special_tokens").value_or(!chat));
  request.set_return_tokens(fields.Bool("return_token_strs").value_or(false));
  RETURN_IF_ERROR(fields.Done());
  if (chat) RETURN_IF_ERROR(CheckChat(request.chat()));
  return request;
}

Json TokenizeJson(const v1::TokenizeResponse& response) {
  Json tokens = Json::array();
  for (const int32_t id : response.token_ids()) tokens.push_back(id);
  Json words;  // null if the client did not request it
  for (const std::string& word : response.tokens()) words.push_back(WordJson(word));
  return {{"count", response.token_ids_size()},
          {"max_model_len", response.context_length()},
          {"tokens", std::move(tokens)},
          {"token_strs", std::move(words)}};
}

absl::StatusOr<v1::DetokenizeRequest> ParseDetokenizeBody(const Json& body,
                                                          FieldRecorder* recorder) {
  v1::DetokenizeRequest request;
  JsonFields fields(body, "", recorder);
  if (const auto model = fields.String("model")) request.set_model(*model);
  if (fields.Find("tokens") == nullptr) fields.Missing("tokens", "is missing; send token ids");
  for (const int32_t id : fields.Ids("tokens")) request.add_token_ids(id);
  request.set_keep_special(true);
  RETURN_IF_ERROR(fields.Done());
  return request;
}

Json DetokenizeJson(const v1::DetokenizeResponse& response) {
  return {{"prompt", response.text()}};
}

absl::StatusOr<v1::TokenizeRequest> ParseApplyTemplateBody(const Json& body,
                                                           FieldRecorder* recorder) {
  v1::TokenizeRequest request;
  JsonFields fields(body, "", recorder);
  if (const auto model = fields.String("model")) request.set_model(*model);
  ReadChat(&fields, request.mutable_chat());
  RETURN_IF_ERROR(fields.Done());
  RETURN_IF_ERROR(CheckChat(request.chat()));
  return request;
}

Json ApplyTemplateJson(const v1::TokenizeResponse& response) {
  return {{"prompt", response.text()}};
}

v1::TokenizeRequest TokenizerInfoRequest() {
  v1::TokenizeRequest request;
  request.set_describe(true);
  return request;
}

Json TokenizerInfoJson(const v1::TokenizeResponse& response) {
  const v1::TokenizerDescription& tokenizer = response.tokenizer();
  return {{"bos_token", OrNull(tokenizer.bos_token())},
          {"eos_token", OrNull(tokenizer.eos_token())},
          {"pad_token", Json()},
          {"chat_template", OrNull(tokenizer.chat_template())},
          {"model_max_length", response.context_length()}};
}

}  // namespace tidepool::service
