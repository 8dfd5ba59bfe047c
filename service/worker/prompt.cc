#include "service/worker/prompt.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "engine/block_hash.h"
#include "kernels/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "service/convert.h"

namespace tidepool::service {
namespace {

using engine::AddBos;
using engine::ControlText;
using engine::SpecialTokens;
using engine::TextPiece;
using Json = nlohmann::ordered_json;

struct Prompt {
  std::vector<int32_t> token_ids;
  int64_t kept = 0;  // of the session's log
};

using Messages = google::protobuf::RepeatedPtrField<v1::ChatMessage>;

// Requires: the JSON texts of `chat` passed CheckGenerateRequest.
engine::ChatInputs MakeInputs(const WorkerModel& model, const v1::Chat& chat,
                              const Messages& messages, absl::Time now) {
  engine::ChatInputs inputs;
  for (const v1::ChatMessage& message : messages) {
    Json object = {{"role", message.role()}, {"content", message.content()}};
    if (message.has_name()) object["name"] = message.name();
    if (message.has_tool_call_id()) object["tool_call_id"] = message.tool_call_id();
    if (message.has_tool_calls_json()) {
      object["tool_calls"] = Json::parse(message.tool_calls_json(), nullptr, false);
    }
    inputs.messages.push_back(std::move(object));
  }
  inputs.bos_token = std::string(model.tokenizer->bos_text());
  inputs.eos_token = std::string(model.tokenizer->eos_text());
  if (chat.has_tools_json()) inputs.tools = Json::parse(chat.tools_json(), nullptr, false);
  if (chat.has_template_kwargs_json()) {
    inputs.template_kwargs = Json::parse(chat.template_kwargs_json(), nullptr, false);
  }
  inputs.now = now;
  return inputs;
}

std::string Join(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

// What is behind the first `bytes` bytes.
std::vector<TextPiece> DropFront(std::vector<TextPiece> pieces, size_t bytes) {
  std::vector<TextPiece> rest;
  for (TextPiece& piece : pieces) {
    const size_t cut = std::min(bytes, piece.text.size());
    bytes -= cut;
    if (cut == piece.text.size()) continue;
    rest.push_back({piece.text.substr(cut), piece.origin});
  }
  return rest;
}

// A word that stands nowhere in `text` and that no template has a reason to change.
std::string UnusedWord(absl::string_view text) {
  for (int i = 0;; ++i) {
    std::string word = absl::StrCat("TidepoolAnswer", i, "Here");
    if (!absl::StrContains(text, word)) return word;
  }
}

// Where a rendering's last stored message ends.
struct Seam {
  size_t content_begin = 0;
  size_t content_end = 0;
  std::vector<TextPiece> behind;
};

// Renders the conversation once more with a word of ours in the place of the last stored message's
// content. False: the template does something else with that message than writing it.
bool FindSeam(const engine::ChatTemplate& chat_template, engine::ChatInputs inputs, int last_stored,
              absl::string_view rendered, Seam* seam) {
  const std::string word = UnusedWord(rendered);
  inputs.messages[last_stored]["content"] = word;
  absl::StatusOr<std::vector<TextPiece>> marked_pieces = chat_template.Render(inputs);
  if (!marked_pieces.ok()) return false;
  const std::string marked = Join(*marked_pieces);
  const size_t at = marked.rfind(word);
  if (at == std::string::npos) return false;
  const absl::string_view behind = absl::string_view(marked).substr(at + word.size());
  if (rendered.size() < at + behind.size() || !absl::EndsWith(rendered, behind) ||
      rendered.substr(0, at) != absl::string_view(marked).substr(0, at)) {
    return false;
  }
  seam->content_begin = at;
  seam->content_end = rendered.size() - behind.size();
  seam->behind = DropFront(*std::move(marked_pieces), at + word.size());
  return true;
}

// Whether the log is what the template makes of the stored messages: the same text up to the last
// answer, and the answer but for space around it. A stop string stands behind the answer in the log
// alone.
bool SameHistory(absl::string_view log_text, absl::string_view rendered, const Seam& seam) {
  if (!absl::StartsWith(log_text, rendered.substr(0, seam.content_begin))) return false;
  const absl::string_view logged = absl::StripAsciiWhitespace(log_text.substr(seam.content_begin));
  const absl::string_view content = absl::StripAsciiWhitespace(
      rendered.substr(seam.content_begin, seam.content_end - seam.content_begin));
  return content.empty() ? logged.empty() : absl::StartsWith(logged, content);
}

absl::Status CheckVocabulary(absl::Span<const int32_t> ids, const WorkerModel& model) {
  for (const int32_t id : ids) {
    if (model.tokenizer->IsValid(id)) continue;
    return absl::InvalidArgumentError(absl::StrCat("token id ", id,
                                                   " is outside the vocabulary of ",
                                                   model.tokenizer->vocab_size(), " tokens"));
  }
  return absl::OkStatus();
}

// How text begins behind a session's log.
AddBos BehindLog(const engine::Tokenizer& tokenizer, absl::Span<const int32_t> log) {
  if (log.empty()) return AddBos::kModelDefault;
  const int32_t last = log.back();
  return tokenizer.IsValid(last) && tokenizer.IsSpecial(last) ? AddBos::kNo : AddBos::kContinue;
}

// FAILED_PRECONDITION: the template would have written something else when the request was rendered
// first, which nobody knows any more.
absl::Status CheckSameSince(const engine::ChatTemplate& chat_template, engine::ChatInputs inputs,
                            const worker::v1::PrepareRequest& request, absl::string_view rendered) {
  if (!request.has_since_us()) return absl::OkStatus();
  inputs.now = absl::FromUnixMicros(request.since_us());
  const absl::StatusOr<std::vector<TextPiece>> then = chat_template.Render(inputs);
  if (then.ok() && Join(*then) == rendered) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the model's chat template tells the time, and what it told when this answer began is not "
      "known here any more: send the request again without resume_after");
}

absl::StatusOr<Prompt> ChatPrompt(const worker::v1::PrepareRequest& request,
                                  const PrepareContext& context) {
  const WorkerModel& model = *context.model;
  if (!model.chat_template.ok()) return model.chat_template.status();
  const engine::ChatTemplate& chat_template = *model.chat_template;
  const engine::Tokenizer& tokenizer = *model.tokenizer;
  const v1::Chat& chat = request.request().chat();
  Messages messages = request.session().messages();
  const int stored = messages.size();
  messages.MergeFrom(chat.messages());
  const absl::Time now =
      request.has_now_us() ? absl::FromUnixMicros(request.now_us()) : context.now;
  const engine::ChatInputs inputs = MakeInputs(model, chat, messages, now);
  absl::StatusOr<std::vector<TextPiece>> rendering = chat_template.Render(inputs);
  // The template's budget, not the server's: a retry would fare no better.
  if (absl::IsResourceExhausted(rendering.status())) {
    return absl::InvalidArgumentError(rendering.status().message());
  }
  ASSIGN_OR_RETURN(const std::vector<TextPiece> pieces, std::move(rendering));
  const std::string rendered = Join(pieces);
  RETURN_IF_ERROR(CheckSameSince(chat_template, inputs, request, rendered));

  const auto& log = request.session().token_ids();
  const std::vector<int32_t> log_ids(log.begin(), log.end());
  RETURN_IF_ERROR(CheckVocabulary(log_ids, model));
  if (stored > 0 && !log_ids.empty()) {
    const bool ended = tokenizer.IsEndOfGeneration(log_ids.back());
    ASSIGN_OR_RETURN(const std::string log_text,
                     tokenizer.Decode(absl::MakeSpan(log_ids).first(log_ids.size() - ended),
                                      ControlText::kKeep));
    Seam seam;
    if (FindSeam(chat_template, inputs, stored - 1, rendered, &seam) &&
        SameHistory(log_text, rendered, seam)) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> suffix,
                       tokenizer.EncodePieces(seam.behind, BehindLog(tokenizer, log_ids)));
      Prompt prompt = {.token_ids = log_ids, .kept = static_cast<int64_t>(log_ids.size())};
      // The model ended its turn with the token that the template would write next.
      const bool repeats = ended && !suffix.empty() && suffix.front() == log_ids.back();
      prompt.token_ids.insert(prompt.token_ids.end(), suffix.begin() + repeats, suffix.end());
      return prompt;
    }
  }
  Prompt prompt;
  ASSIGN_OR_RETURN(prompt.token_ids, tokenizer.EncodePieces(pieces, AddBos::kNo));
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
  if (request.request().has_token_ids()) {
    const auto& ids = request.request().token_ids().ids();
    prompt.token_ids.insert(prompt.token_ids.end(), ids.begin(), ids.end());
    return prompt;
  }
  const engine::Tokenizer& tokenizer = *context.model->tokenizer;
  ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                   tokenizer.Encode(request.request().text(), SpecialTokens::kParse,
                                    BehindLog(tokenizer, prompt.token_ids)));
  // A model that is trained with an EOS behind its texts would take the prompt for finished.
  if (log.empty() && tokenizer.adds_eos() && !ids.empty() && ids.back() == tokenizer.eos_id()) {
    ids.pop_back();
  }
  prompt.token_ids.insert(prompt.token_ids.end(), ids.begin(), ids.end());
  return prompt;
}

size_t TextBytes(const v1::GenerateRequest& request) {
  size_t bytes = request.text().size();
  for (const v1::ChatMessage& message : request.chat().messages())
    bytes += message.content().size();
  return bytes;
}

absl::Status CheckPrompt(const Prompt& prompt, int64_t log_length, const WorkerModel& model) {
  const int64_t tokens = prompt.token_ids.size();
  RETURN_IF_ERROR(CheckVocabulary(prompt.token_ids, model));
  if (tokens == 0) return absl::InvalidArgumentError("the prompt is empty");
  if (tokens < model.context_length) return absl::OkStatus();
  if (log_length > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the session is full: with this turn its log is ", tokens, " tokens, and the context of ",
        model.context_length,
        " must hold at least one more; cut it with TruncateSession, branch off it with "
        "ForkSession, or go on in a new session"));
  }
  return absl::InvalidArgumentError(absl::StrCat("the prompt is ", tokens,
                                                 " tokens; the context of ", model.context_length,
                                                 " must hold it and at least one more"));
}

}  // namespace

absl::Status CheckTextFits(const WorkerModel& model, size_t bytes) {
  // Most texts are short, and this is as long as common tokens get.
  constexpr size_t kCommonTokenBytes = 4;
  const size_t context = static_cast<size_t>(model.context_length);
  if (bytes <= context * kCommonTokenBytes) return absl::OkStatus();
  size_t longest = 1;
  for (int32_t id = 0; id < model.tokenizer->vocab_size(); ++id) {
    longest = std::max(longest, model.tokenizer->TokenBytes(id).size());
  }
  if (bytes <= context * longest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the prompt of ", bytes, " bytes is past the context of ", model.context_length, " tokens"));
}

absl::StatusOr<worker::v1::PrepareResponse> Prepare(const worker::v1::PrepareRequest& request,
                                                    const PrepareContext& context) {
  const WorkerModel& model = *context.model;
  RETURN_IF_ERROR(CheckGenerateRequest(request.request()));
  RETURN_IF_ERROR(CheckTextFits(model, TextBytes(request.request())));
  ASSIGN_OR_RETURN(const Prompt prompt, request.request().has_chat()
                                            ? ChatPrompt(request, context)
                                            : TokensPrompt(request, context));
  RETURN_IF_ERROR(CheckPrompt(prompt, request.session().token_ids_size(), model));

  engine::SamplingParams sampling = FromProto(request.request().sampling(), model.default_sampling);
  if (!request.request().sampling().has_seed()) sampling.seed = context.drawn_seed;
  RETURN_IF_ERROR(sampling.Validate(model.tokenizer->vocab_size()));
  engine::StoppingParams stopping = FromProto(request.request().stopping());
  const int64_t room = model.context_length - static_cast<int64_t>(prompt.token_ids.size());
  stopping.max_tokens =
      request.request().stopping().has_max_tokens() ? std::min(stopping.max_tokens, room) : room;
  RETURN_IF_ERROR(stopping.Validate(model.tokenizer->vocab_size()));

  worker::v1::PrepareResponse response;
  response.mutable_token_ids()->Assign(prompt.token_ids.begin(), prompt.token_ids.end());
  response.set_session_tokens_kept(prompt.kept);
  ToProto(sampling, response.mutable_sampling());
  ToProto(stopping, response.mutable_stopping());
  response.set_model_digest(model.digest);
  response.set_numerics_id(model.numerics_id);
  for (const uint64_t digest :
       engine::BlockDigests(prompt.token_ids, model.cache_seed, context.salt)) {
    response.add_block_hashes(digest);
  }
  return response;
}

}  // namespace tidepool::service
