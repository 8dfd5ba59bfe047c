#include "service/worker/text_calls.h"

#include <string>
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "service/grpc/check_request.h"
#include "service/worker/chat_prompt.h"

namespace tidepool::service {
namespace {

using engine::AddBos;
using engine::SpecialTokens;

absl::StatusOr<std::vector<int32_t>> TextIds(const engine::Tokenizer& tokenizer,
                                             const v1::TokenizeRequest& request) {
  return tokenizer.Encode(request.text(),
                          request.parse_special() ? SpecialTokens::kParse : SpecialTokens::kAsText,
                          request.add_special() ? AddBos::kModelDefault : AddBos::kNo);
}

// Renders and tokenises a chat. Also stores the rendered text in `response`.
absl::StatusOr<std::vector<int32_t>> ChatIds(const WorkerModel& model,
                                             const v1::TokenizeRequest& request, absl::Time now,
                                             v1::TokenizeResponse* response) {
  RETURN_IF_ERROR(CheckChat(request.chat()));
  ASSIGN_OR_RETURN(RenderedChat chat,
                   RenderChat(model, request.chat(), request.chat().messages(), now));
  response->set_text(std::move(chat.text));
  return model.tokenizer->EncodePieces(chat.pieces,
                                       request.add_special() ? AddBos::kModelDefault : AddBos::kNo);
}

void Describe(const engine::Tokenizer& tokenizer, v1::TokenizerDescription* out) {
  out->set_bos_token(std::string(tokenizer.bos_text()));
  out->set_eos_token(std::string(tokenizer.eos_text()));
  out->set_chat_template(tokenizer.spec().chat_template);
}

}  // namespace

absl::StatusOr<v1::TokenizeResponse> TokenizeFor(const WorkerModel& model,
                                                 const v1::TokenizeRequest& request,
                                                 absl::Time now) {
  if (request.has_chat() && !request.text().empty()) {
    return absl::InvalidArgumentError("text and chat are both set; set one of them");
  }
  v1::TokenizeResponse response;
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, request.has_chat()
                                                       ? ChatIds(model, request, now, &response)
                                                       : TextIds(*model.tokenizer, request));
  response.mutable_token_ids()->Assign(ids.begin(), ids.end());
  if (request.return_tokens()) {
    for (const int32_t id : ids) {
      response.add_tokens(std::string(model.tokenizer->TokenText(id)));
    }
  }
  response.set_context_length(model.context_length);
  if (request.describe()) Describe(*model.tokenizer, response.mutable_tokenizer());
  return response;
}

absl::StatusOr<v1::DetokenizeResponse> DetokenizeFor(const WorkerModel& model,
                                                     const v1::DetokenizeRequest& request) {
  const auto control =
      request.keep_special() ? engine::ControlText::kKeep : engine::ControlText::kSkip;
  const std::vector<int32_t> ids(request.token_ids().begin(), request.token_ids().end());
  ASSIGN_OR_RETURN(std::string text, model.tokenizer->Decode(ids, control));
  v1::DetokenizeResponse response;
  if (request.keep_spaces()) {
    engine::StreamDecoder decoder(model.tokenizer, control);
    for (const int32_t id : ids) response.mutable_text()->append(decoder.Feed(id));
    response.mutable_text()->append(decoder.Flush());
  } else {
    response.set_text(std::move(text));
  }
  return response;
}

}  // namespace tidepool::service
