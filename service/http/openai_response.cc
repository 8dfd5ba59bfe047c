#include "service/http/openai_response.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/utf8.h"

namespace tidepool::service {
namespace {

// JSON has no infinities. Servers usually write -9999 instead.
double Finite(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

std::string Lossy(const std::string& bytes) {
  std::string text;
  const std::string tail = base::AppendUtf8Lossy(bytes, &text);
  if (!tail.empty()) absl::StrAppend(&text, base::kReplacementCharacter);
  return text;
}

Json BytesJson(const std::string& bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<uint8_t>(c));
  return list;
}

Json ChatLogprob(const v1::TokenLogprob& token) {
  Json top = Json::array();
  for (const v1::TopLogprob& other : token.top()) {
    top.push_back({{"token", Lossy(other.token())},
                   {"logprob", Finite(other.logprob())},
                   {"bytes", BytesJson(other.token())}});
  }
  return {{"token", Lossy(token.token())},
          {"logprob", Finite(token.logprob())},
          {"bytes", BytesJson(token.token())},
          {"top_logprobs", std::move(top)}};
}

// The format of /v1/completions identifies tokens only by their text. So tokens that are not valid
// UTF-8 get different texts: "bytes:" and their bytes.
std::string LegacyName(const std::string& bytes) {
  if (base::ValidUtf8Prefix(bytes) == bytes.size()) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes) absl::StrAppendFormat(&name, "\\x%02x", static_cast<uint8_t>(c));
  return name;
}

int64_t Characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

// Returns the first `most` alternatives, and also the token itself if it is not among them, as in
// OpenAI's API. Returns an empty object if `most` is 0.
Json LegacyTop(const v1::TokenLogprob& token, int32_t most) {
  Json top = Json::object();
  for (int32_t i = 0; i < std::min(most, token.top_size()); ++i) {
    top[LegacyName(token.top(i).token())] = Finite(token.top(i).logprob());
  }
  if (!top.empty()) top.emplace(LegacyName(token.token()), Finite(token.logprob()));
  return top;
}

// Returns whether this is the first token of the prompt, which has no log-probability.
bool IsFirstOfPrompt(const v1::TokenLogprob& token) { return token.rank() == 0; }

// Returns the token itself and the first `most` alternatives, in vLLM's format.
Json PromptLogprobJson(const v1::TokenLogprob& token, int32_t most) {
  if (IsFirstOfPrompt(token)) return {};
  const auto entry = [](float logprob, int32_t rank, const std::string& bytes) -> Json {
    return {{"logprob", Finite(logprob)}, {"rank", rank}, {"decoded_token", Lossy(bytes)}};
  };
  Json all = Json::object();
  for (int32_t i = 0; i < std::min(most, token.top_size()); ++i) {
    const v1::TopLogprob& other = token.top(i);
    all[absl::StrCat(other.token_id())] = entry(other.logprob(), i + 1, other.token());
  }
  all[absl::StrCat(token.token_id())] = entry(token.logprob(), token.rank(), token.token());
  return all;
}

// Appends `json` to the elements of a list. The elements are separated by commas.
void AppendElement(const Json& json, std::string* list) {
  absl::StrAppend(list, list->empty() ? "" : ",", DumpJson(json));
}

// Returns the JSON text `object` with one more member.
std::string WithMember(std::string object, absl::string_view name, absl::string_view value) {
  object.pop_back();
  absl::StrAppend(&object, ",\"", name, "\":", value, "}");
  return object;
}

std::string WithExtras(std::string object, const ResponseExtras& extras) {
  const std::pair<const char*, const std::string*> members[] = {
      {"prompt_token_ids", &extras.prompt_token_ids},
      {"prompt_logprobs", &extras.prompt_logprobs},
      {"prompt_progress", &extras.prompt_progress},
      {"timings", &extras.timings}};
  for (const auto& [name, value] : members) {
    if (!value->empty()) object = WithMember(std::move(object), name, *value);
  }
  return object;
}

const char* ObjectName(OpenAiEndpoint endpoint, bool chunk) {
  if (endpoint == OpenAiEndpoint::kCompletions) return "text_completion";
  return chunk ? "chat.completion.chunk" : "chat.completion";
}

Json HeadJson(const ResponseHead& head, bool chunk) {
  return {{"id", head.id},
          {"object", ObjectName(head.endpoint, chunk)},
          {"created", head.created},
          {"model", head.model}};
}

}  // namespace

Json TokensJson(int64_t prompt_tokens, int64_t completion_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens}};
}

Json UsageJson(const ResponseUsage& usage) {
  Json json = TokensJson(usage.prompt_tokens, usage.completion_tokens);
  json["prompt_tokens_details"] = {{"cached_tokens", usage.cached_tokens}};
  if (usage.has_experts) {
    json["expert_hits"] = usage.expert_hits;
    json["expert_misses"] = usage.expert_misses;
    json["expert_demand_bytes"] = usage.expert_demand_bytes;
    json["expert_stall_seconds"] = usage.expert_stall_seconds;
  }
  if (usage.has_reasoning) {
    json["completion_tokens_details"] = {{"reasoning_tokens", usage.reasoning_tokens}};
  }
  return json;
}

Json TimingsJson(const ResponseUsage& usage) {
  const int64_t computed = usage.prompt_tokens - usage.cached_tokens;
  // The first output token is computed by prefill and not by decoding.
  const int64_t decoded = std::max<int64_t>(usage.completion_tokens - 1, 0);
  const auto each = [](double seconds, int64_t count) -> Json {
    return count > 0 ? Json(1000 * seconds / static_cast<double>(count)) : Json();
  };
  const auto rate = [](double seconds, int64_t count) -> Json {
    return seconds > 0 ? Json(static_cast<double>(count) / seconds) : Json();
  };
  return {{"cache_n", usage.cached_tokens},
          {"prompt_n", computed},
          {"prompt_ms", 1000 * usage.prefill_seconds},
          {"prompt_per_token_ms", each(usage.prefill_seconds, computed)},
          {"prompt_per_second", rate(usage.prefill_seconds, computed)},
          {"predicted_n", usage.completion_tokens},
          {"predicted_ms", 1000 * usage.decode_seconds},
          {"predicted_per_token_ms", each(usage.decode_seconds, decoded)},
          {"predicted_per_second", rate(usage.decode_seconds, decoded)}};
}

Json ProgressJson(const v1::PromptProgress& progress) {
  return {{"total", progress.total()},
          {"cache", progress.cached()},
          {"processed", progress.processed()},
          {"time_ms", static_cast<int64_t>(1000 * progress.seconds())}};
}

std::string ResponseText(const ResponseHead& head, std::vector<std::string> choices,
                         const ResponseUsage& usage, const ResponseExtras& extras) {
  std::string list = "[";
  for (std::string& choice : choices) {
    absl::StrAppend(&list, list.size() > 1 ? "," : "", choice);
    choice = std::string();
  }
  list += "]";
  std::string text = WithMember(DumpJson(HeadJson(head, /*chunk=*/false)), "choices", list);
  text = WithMember(std::move(text), "usage", DumpJson(UsageJson(usage)));
  return WithExtras(std::move(text), extras);
}

std::string ChunkText(const ResponseHead& head, absl::string_view choice, absl::string_view usage,
                      const ResponseExtras& extras) {
  std::string text = WithMember(DumpJson(HeadJson(head, /*chunk=*/true)), "choices",
                                absl::StrCat("[", choice, "]"));
  if (!usage.empty()) text = WithMember(std::move(text), "usage", usage);
  return WithExtras(std::move(text), extras);
}

std::string SseEvent(absl::string_view json) { return absl::StrCat("data: ", json, "\n\n"); }

ChoiceRenderer::ChoiceRenderer(const ResponseHead& head, int64_t index, const PromptParts& parts)
    : endpoint_(head.endpoint),
      index_(index),
      parts_(parts),
      prompt_token_due_(parts.echo_logprobs.has_value()) {}

void ChoiceRenderer::TakeEvent(const v1::OutputEvent& event) {
  text_ += event.content();
  reasoning_ += event.reasoning();
  if (!event.has_tool_call()) return;
  has_calls_ = true;
  const v1::ToolCallDelta& piece = event.tool_call();
  if (!calls_.empty() && calls_.back().index() == piece.index()) {
    calls_.back().mutable_arguments()->append(piece.arguments());
  } else {
    calls_.push_back(piece);
  }
}

void ChoiceRenderer::Take(const v1::GenerateResponse& message) {
  TakePrompt(message);
  finish_ = message.finish_reason();
  if (endpoint_ == OpenAiEndpoint::kChat) {
    for (const v1::OutputEvent& event : message.events()) TakeEvent(event);
  } else {
    text_ += message.text();
  }
  completion_tokens_ += message.token_ids_size();
  if (parts_.token_ids) {
    for (const int32_t id : message.token_ids()) AppendElement(id, &token_ids_);
  }
  for (const v1::TokenLogprob& token : message.logprobs()) TakeLogprob(token, token.top_size());
}

void ChoiceRenderer::TakePrompt(const v1::GenerateResponse& message) {
  if (message.prompt_token_ids_size() > 0) prompt_tokens_ = message.prompt_token_ids_size();
  if (parts_.echo) text_ += message.prompt_text();
  if (!std::exchange(echo_sent_, true)) text_ += parts_.echo_text;
  if (parts_.token_ids) {
    for (const int32_t id : message.prompt_token_ids()) AppendElement(id, &prompt_ids_);
  }
  TakePromptLogprobs(message);
}

void ChoiceRenderer::TakePromptLogprobs(const v1::GenerateResponse& message) {
  for (const v1::TokenLogprob& token : message.prompt_logprobs()) TakePromptLogprob(token);
}

void ChoiceRenderer::TakePromptLogprob(const v1::TokenLogprob& token) {
  if (parts_.prompt_logprobs.has_value()) {
    AppendElement(PromptLogprobJson(token, *parts_.prompt_logprobs), &prompt_logprobs_);
  }
  if (parts_.echo_logprobs.has_value()) TakeLogprob(token, *parts_.echo_logprobs);
}

std::string ChoiceRenderer::GivePromptIds() {
  const std::string ids = std::exchange(prompt_ids_, "");
  return ids.empty() ? "" : absl::StrCat("[", ids, "]");
}

std::string ChoiceRenderer::GivePromptLogprobs() {
  const std::string list = std::exchange(prompt_logprobs_, "");
  return list.empty() ? "" : absl::StrCat("[", list, "]");
}

void ChoiceRenderer::TakeLogprob(const v1::TokenLogprob& token, int32_t max_top) {
  if (endpoint_ == OpenAiEndpoint::kChat) {
    return AppendElement(ChatLogprob(token), &logprobs_.tokens);
  }
  AppendElement(LegacyName(token.token()), &logprobs_.tokens);
  const bool first = prompt_token_due_ && IsFirstOfPrompt(token);
  prompt_token_due_ = false;
  AppendElement(first ? Json() : Json(Finite(token.logprob())), &logprobs_.values);
  AppendElement(first ? Json() : LegacyTop(token, max_top), &logprobs_.tops);
  AppendElement(offset_, &logprobs_.offsets);
  offset_ += Characters(token.token());
  logprobs_.any_top = logprobs_.any_top || token.top_size() > 0;
}

std::string ChoiceRenderer::GiveLogprobs() {
  const LogprobTexts texts = std::exchange(logprobs_, {});
  if (texts.tokens.empty()) return "null";
  if (endpoint_ == OpenAiEndpoint::kChat) {
    return absl::StrCat("{\"content\":[", texts.tokens, "],\"refusal\":null}");
  }
  return absl::StrCat("{\"text_offset\":[", texts.offsets, "],\"token_logprobs\":[", texts.values,
                      "],\"tokens\":[", texts.tokens, "],\"top_logprobs\":",
                      texts.any_top ? absl::StrCat("[", texts.tops, "]") : "null", "}");
}

std::string ChoiceRenderer::WithEnd(const Json& choice) {
  std::string text = WithMember(DumpJson(choice), "logprobs", GiveLogprobs());
  text = WithMember(std::move(text), "finish_reason", DumpJson(FinishJson()));
  if (parts_.token_ids) {
    const std::string ids = std::exchange(token_ids_, "");
    text = WithMember(std::move(text), "token_ids", absl::StrCat("[", ids, "]"));
  }
  if (endpoint_ == OpenAiEndpoint::kChat) return text;
  if (const std::string ids = GivePromptIds(); !ids.empty()) {
    text = WithMember(std::move(text), "prompt_token_ids", ids);
  }
  if (const std::string list = GivePromptLogprobs(); !list.empty()) {
    text = WithMember(std::move(text), "prompt_logprobs", list);
  }
  return text;
}

Json ChoiceRenderer::TakeCallPieces() {
  Json list = Json::array();
  for (const v1::ToolCallDelta& piece : calls_) {
    Json& json = list.emplace_back(Json{{"index", piece.index()}});
    Json function = Json::object();
    if (!piece.id().empty()) {
      json["id"] = piece.id();
      json["type"] = "function";
      function["name"] = piece.name();
    }
    function["arguments"] = piece.arguments();
    json["function"] = std::move(function);
  }
  calls_.clear();
  return list;
}

Json ChoiceRenderer::TakeCalls() {
  Json list = Json::array();
  for (const v1::ToolCallDelta& call : calls_) {
    list.push_back({{"id", call.id()},
                    {"type", "function"},
                    {"function", {{"name", call.name()}, {"arguments", call.arguments()}}}});
  }
  calls_.clear();
  return list;
}

Json ChoiceRenderer::FinishJson() const {
  switch (finish_) {
    case v1::FINISH_REASON_UNSPECIFIED:
      return {};
    case v1::LENGTH:
      return "length";
    case v1::CANCELLED:
      return "abort";
    default:  // STOP, STOP_STRING, and reasons that only newer workers know
      return has_calls_ ? "tool_calls" : "stop";
  }
}

std::optional<std::string> ChoiceRenderer::TakeDelta() {
  const bool last = finish_ != v1::FINISH_REASON_UNSPECIFIED;
  const bool has_content = !text_.empty() || !logprobs_.tokens.empty() || !token_ids_.empty();
  if (!has_content && reasoning_.empty() && calls_.empty() && !last) return std::nullopt;
  Json choice = {{"index", index_}};
  if (endpoint_ == OpenAiEndpoint::kCompletions) {
    choice["text"] = std::exchange(text_, "");
  } else {
    Json delta = Json::object();
    if (!std::exchange(role_sent_, true)) delta["role"] = "assistant";
    if (!reasoning_.empty()) delta["reasoning_content"] = std::exchange(reasoning_, "");
    if (has_content) delta["content"] = std::exchange(text_, "");
    if (!calls_.empty()) delta["tool_calls"] = TakeCallPieces();
    choice["delta"] = std::move(delta);
  }
  return WithEnd(choice);
}

size_t ChoiceRenderer::bytes() const {
  size_t bytes = text_.size() + reasoning_.size() + logprobs_.tokens.size() +
                 logprobs_.values.size() + logprobs_.tops.size() + logprobs_.offsets.size() +
                 prompt_ids_.size() + prompt_logprobs_.size() + token_ids_.size();
  for (const v1::ToolCallDelta& call : calls_) {
    bytes += call.id().size() + call.name().size() + call.arguments().size();
  }
  return bytes;
}

std::string ChoiceRenderer::TakeWhole() {
  Json choice = {{"index", index_}};
  if (endpoint_ == OpenAiEndpoint::kCompletions) {
    choice["text"] = std::exchange(text_, "");
  } else {
    const bool no_text = text_.empty() && !calls_.empty();
    Json message = {{"role", "assistant"},
                    {"content", no_text ? Json() : Json(std::exchange(text_, ""))},
                    {"refusal", Json()}};
    if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, "");
    if (!calls_.empty()) message["tool_calls"] = TakeCalls();
    choice["message"] = std::move(message);
  }
  return WithEnd(choice);
}

}  // namespace tidepool::service
