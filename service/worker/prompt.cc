#include "service/worker/prompt.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "engine/kv/block_hash.h"
#include "kernels/base/status_macros.h"
#include "service/grpc/check_request.h"
#include "service/grpc/convert.h"
#include "service/tools/tool_format.h"
#include "service/worker/bias_texts.h"
#include "service/worker/chat_prompt.h"
#include "service/worker/output_rules.h"

namespace tidepool::service {
namespace {

using engine::AddBos;
using engine::ControlText;
using engine::SpecialTokens;
using engine::TextPiece;

struct Prompt {
  std::vector<int32_t> token_ids;
  int64_t kept = 0;  // how many tokens of the session's log the prompt keeps
  bool in_reasoning = false;
};

// Returns whether the template renders the stored messages to the same text as the log. The text
// before the last response must be equal. The last response must also be equal, except for white
// space around it. After it, the log may have more text, for example a stop string.
bool SameHistory(absl::string_view log_text, absl::string_view rendered, const Seam& seam) {
  if (!absl::StartsWith(log_text, rendered.substr(0, seam.content_begin))) return false;
  const absl::string_view logged = absl::StripAsciiWhitespace(log_text.substr(seam.content_begin));
  const absl::string_view content = absl::StripAsciiWhitespace(
      rendered.substr(seam.content_begin, seam.content_end - seam.content_begin));
  return content.empty() ? logged.empty() : absl::StartsWith(logged, content);
}

absl::Status CheckVocabulary(absl::Span<const int32_t> ids, const WorkerModel& model) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (model.tokenizer->IsValid(ids[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat("token_ids[", i, "] is ", ids[i],
                                                   ", outside the vocabulary of ",
                                                   model.tokenizer->vocab_size(), " tokens"));
  }
  return absl::OkStatus();
}

// Checks the log's tokens. An error is DATA_LOSS, because an invalid log is not the client's fault.
absl::Status CheckLog(const worker::v1::PrepareRequest& request, absl::Span<const int32_t> log,
                      const WorkerModel& model) {
  const absl::Status status = CheckVocabulary(log, model);
  if (status.ok()) return status;
  return absl::DataLossError(absl::StrCat(
      "session '", request.request().session_id(), "' is damaged: its log has an invalid token: ",
      status.message(), "; restore a backup of the store, or delete the session"));
}

// Returns whether a BOS token is put before the text when it is appended to the log.
AddBos BosAfterLog(const engine::Tokenizer& tokenizer, absl::Span<const int32_t> log) {
  if (log.empty()) return AddBos::kModelDefault;
  const int32_t last = log.back();
  return tokenizer.IsValid(last) && tokenizer.IsSpecial(last) ? AddBos::kNo : AddBos::kContinue;
}

// The client resumes a response whose first rendering is lost. FAILED_PRECONDITION if the template
// would have rendered another text when the response began.
absl::Status CheckSameSince(const worker::v1::PrepareRequest& request,
                            const PrepareContext& context, const RenderedChat& rendered) {
  if (!request.has_since_us()) return absl::OkStatus();
  ChatMessages messages = request.session().messages();
  messages.MergeFrom(request.request().chat().messages());
  const absl::StatusOr<RenderedChat> then = RenderChat(
      *context.model, request.request().chat(), messages, absl::FromUnixMicros(request.since_us()));
  if (then.ok() && then->text == rendered.text) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the chat template uses the time, and the time at which this response began is no longer "
      "known: send the request again without resume_after");
}

absl::StatusOr<Prompt> ChatPrompt(const worker::v1::PrepareRequest& request,
                                  const PrepareContext& context) {
  const WorkerModel& model = *context.model;
  const engine::Tokenizer& tokenizer = *model.tokenizer;
  const v1::Chat& chat = request.request().chat();
  ChatMessages messages = request.session().messages();
  const int stored = messages.size();
  messages.MergeFrom(chat.messages());
  const absl::Time now =
      request.has_now_us() ? absl::FromUnixMicros(request.now_us()) : context.now;
  ASSIGN_OR_RETURN(const RenderedChat chat_text, RenderChat(model, chat, messages, now));
  const engine::ChatTemplate& chat_template = *model.chat_template;
  const std::string& rendered = chat_text.text;
  RETURN_IF_ERROR(CheckSameSince(request, context, chat_text));

  const auto& log = request.session().token_ids();
  const std::vector<int32_t> log_ids(log.begin(), log.end());
  RETURN_IF_ERROR(CheckLog(request, log_ids, model));
  if (stored > 0 && !log_ids.empty()) {
    const bool ended = tokenizer.IsEndOfGeneration(log_ids.back());
    ASSIGN_OR_RETURN(const std::string log_text,
                     tokenizer.Decode(absl::MakeSpan(log_ids).first(log_ids.size() - ended),
                                      ControlText::kKeep));
    Seam seam;
    const int last = stored - 1 + chat_text.added_messages;
    if (FindSeam(chat_template, chat_text.inputs, last, rendered, &seam) &&
        SameHistory(log_text, rendered, seam)) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> suffix,
                       tokenizer.EncodePieces(seam.after, BosAfterLog(tokenizer, log_ids)));
      Prompt prompt = {.token_ids = log_ids,
                       .kept = static_cast<int64_t>(log_ids.size()),
                       .in_reasoning = chat_text.in_reasoning};
      // If the model has ended its response with an end token, the template writes the same token
      // next. The token must not occur twice.
      const bool repeats = ended && !suffix.empty() && suffix.front() == log_ids.back();
      prompt.token_ids.insert(prompt.token_ids.end(), suffix.begin() + repeats, suffix.end());
      return prompt;
    }
  }
  Prompt prompt = {.in_reasoning = chat_text.in_reasoning};
  ASSIGN_OR_RETURN(prompt.token_ids, tokenizer.EncodePieces(chat_text.pieces, AddBos::kNo));
  prompt.kept = std::mismatch(log_ids.begin(), log_ids.end(), prompt.token_ids.begin(),
                              prompt.token_ids.end())
                    .first -
                log_ids.begin();
  return prompt;
}

absl::StatusOr<Prompt> TokensPrompt(const worker::v1::PrepareRequest& request,
                                    const PrepareContext& context) {
  const auto& log = request.session().token_ids();
  Prompt prompt = {.token_ids = {log.begin(), log.end()}, .kept = log.size()};
  RETURN_IF_ERROR(CheckLog(request, prompt.token_ids, *context.model));
  if (request.request().has_token_ids()) {
    const auto& ids = request.request().token_ids().ids();
    prompt.token_ids.insert(prompt.token_ids.end(), ids.begin(), ids.end());
    return prompt;
  }
  const engine::Tokenizer& tokenizer = *context.model->tokenizer;
  ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                   tokenizer.Encode(request.request().text(), SpecialTokens::kParse,
                                    BosAfterLog(tokenizer, prompt.token_ids)));
  // Some tokenizers append EOS to a text. Remove it, because the model would treat the prompt as
  // finished.
  if (log.empty() && tokenizer.adds_eos() && !ids.empty() && ids.back() == tokenizer.eos_id()) {
    ids.pop_back();
  }
  prompt.token_ids.insert(prompt.token_ids.end(), ids.begin(), ids.end());
  return prompt;
}

size_t TextBytes(const v1::GenerateRequest& request) {
  size_t bytes = request.text().size();
  for (const v1::ChatMessage& message : request.chat().messages()) {
    bytes += message.content().size();
  }
  return bytes;
}

absl::Status CheckPrompt(const Prompt& prompt, int64_t log_length, const WorkerModel& model) {
  const int64_t tokens = prompt.token_ids.size();
  RETURN_IF_ERROR(CheckVocabulary(prompt.token_ids, model));
  if (tokens == 0) return absl::InvalidArgumentError("the prompt is empty");
  if (tokens < model.context_length) return absl::OkStatus();
  if (log_length > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the session is full: with this turn its log has ", tokens,
                     " tokens; the context of ", model.context_length,
                     " must hold at least one more. Truncate it with TruncateSession, fork it with "
                     "ForkSession, or continue in a new session"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the prompt has ", tokens, " tokens; this model's maximum context length is ",
                   model.context_length, " tokens, for the prompt and at least one more"));
}

}  // namespace

absl::Status CheckTextFits(const WorkerModel& model, size_t bytes) {
  // Most texts that fit pass this quick check, because the mean length of their tokens is below
  // this.
  constexpr size_t kCommonTokenBytes = 4;
  const size_t context = static_cast<size_t>(model.context_length);
  if (bytes <= context * kCommonTokenBytes) return absl::OkStatus();
  size_t longest = 1;
  for (int32_t id = 0; id < model.tokenizer->vocab_size(); ++id) {
    longest = std::max(longest, model.tokenizer->TokenBytes(id).size());
  }
  if (bytes <= context * longest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the prompt of ", bytes,
                                                 " bytes is too long; this model's maximum context "
                                                 "length is ",
                                                 model.context_length, " tokens"));
}

namespace {

// Returns the client's prompt as text. Token ids are decoded.
absl::StatusOr<std::string> EchoText(const v1::GenerateRequest& request, const Prompt& prompt,
                                     const WorkerModel& model) {
  if (request.has_text()) return request.text();
  return model.tokenizer->Decode(prompt.token_ids, ControlText::kKeep);
}

// Returns the control tokens that are markers in the responses to this chat. In harmony, every
// response has markers. Other models write markers of calls only if the request has tools.
std::vector<int32_t> MarkerTokens(const WorkerModel& model, const v1::Chat& chat) {
  const bool has_tools = chat.has_tools_json() && chat.tool_choice().mode() != v1::ToolChoice::NONE;
  const v1::ToolSyntax syntax = has_tools || model.tool_syntax == v1::HARMONY
                                    ? model.tool_syntax
                                    : v1::TOOL_SYNTAX_UNSPECIFIED;
  std::vector<int32_t> ids;
  for (const std::string& text : MarkersOf(syntax, model.reasoning)) {
    const std::optional<int32_t> id = model.tokenizer->FindToken(text);
    if (id.has_value() && model.tokenizer->IsControl(*id)) ids.push_back(*id);
  }
  return ids;
}

}  // namespace

absl::StatusOr<worker::v1::PrepareResponse> Prepare(const worker::v1::PrepareRequest& request,
                                                    const PrepareContext& context) {
  const WorkerModel& model = *context.model;
  RETURN_IF_ERROR(CheckGenerateRequest(request.request()));
  RETURN_IF_ERROR(CheckTextFits(model, TextBytes(request.request())));
  ASSIGN_OR_RETURN(const Prompt prompt, request.request().has_chat()
                                            ? ChatPrompt(request, context)
                                            : TokensPrompt(request, context));
  RETURN_IF_ERROR(CheckPrompt(prompt, request.session().token_ids_size(), model));

  RETURN_IF_ERROR(
      CheckOutputRules(model, request.request(), prompt.token_ids, prompt.in_reasoning));
  engine::SamplingParams sampling = FromProto(request.request().sampling(), model.default_sampling);
  RETURN_IF_ERROR(AddBiasTexts(request.request().sampling(), *model.tokenizer, &sampling));
  if (!request.request().sampling().has_seed()) sampling.seed = context.drawn_seed;
  RETURN_IF_ERROR(sampling.Validate(model.tokenizer->vocab_size()));
  engine::StoppingParams stopping = FromProto(request.request().stopping());
  const int64_t room = model.context_length - static_cast<int64_t>(prompt.token_ids.size());
  stopping.max_tokens = engine::LimitMaxTokens(AskedMaxTokens(request.request().stopping()), room);
  RETURN_IF_ERROR(stopping.Validate(model.tokenizer->vocab_size()));

  worker::v1::PrepareResponse response;
  response.mutable_token_ids()->Assign(prompt.token_ids.begin(), prompt.token_ids.end());
  response.set_session_tokens_kept(prompt.kept);
  ToProto(sampling, response.mutable_sampling());
  ToProto(stopping, response.mutable_stopping());
  if (request.request().echo()) {
    ASSIGN_OR_RETURN(*response.mutable_prompt_text(), EchoText(request.request(), prompt, model));
  }
  response.set_in_reasoning(prompt.in_reasoning);
  if (request.request().parse_output()) {
    const std::vector<int32_t> markers = MarkerTokens(model, request.request().chat());
    response.mutable_marker_token_ids()->Assign(markers.begin(), markers.end());
  }
  response.set_understands(kUnderstands);
  response.set_model_digest(model.digest);
  response.set_model_content_digest(model.content_digest);
  response.set_numerics_id(model.numerics_id);
  for (const uint64_t digest :
       engine::BlockDigests(prompt.token_ids, model.cache_seed, context.salt)) {
    response.add_block_hashes(digest);
  }
  return response;
}

}  // namespace tidepool::service
