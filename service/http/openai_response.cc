#include "service/http/openai_response.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/tokenizer/utf8.h"

namespace tidepool::service {
namespace {

// JSON has no infinities; this is what stands for them in the field.
double Finite(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

std::string Lossy(const std::string& bytes) {
  std::string text;
  const std::string tail = engine::AppendUtf8Lossy(bytes, &text);
  if (!tail.empty()) absl::StrAppend(&text, engine::kReplacementCharacter);
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

// The older shape names tokens by text alone: parts of characters must not look alike.
std::string LegacyName(const std::string& bytes) {
  if (engine::ValidUtf8Prefix(bytes) == bytes.size()) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes) absl::StrAppendFormat(&name, "\\x%02x", static_cast<uint8_t>(c));
  return name;
}

int64_t Characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

Json LegacyTop(const v1::TokenLogprob& token) {
  Json top = Json::object();
  for (const v1::TopLogprob& other : token.top()) {
    top[LegacyName(other.token())] = Finite(other.logprob());
  }
  return top;
}

// Appends `json` to the elements of a list.
void AppendElement(const Json& json, std::string* list) {
  absl::StrAppend(list, list->empty() ? "" : ",", DumpJson(json));
}

// `object` with one member more.
std::string WithMember(std::string object, absl::string_view name, absl::string_view value) {
  object.pop_back();
  absl::StrAppend(&object, ",\"", name, "\":", value, "}");
  return object;
}

const char* ObjectName(OpenAiEndpoint endpoint, bool chunk) {
  if (endpoint == OpenAiEndpoint::kCompletions) return "text_completion";
  return chunk ? "chat.completion.chunk" : "chat.completion";
}

Json HeadJson(const AnswerHead& head, bool chunk) {
  return {{"id", head.id},
          {"object", ObjectName(head.endpoint, chunk)},
          {"created", head.created},
          {"model", head.model}};
}

}  // namespace

Json UsageJson(const AnswerUsage& usage) {
  Json json = {{"prompt_tokens", usage.prompt_tokens},
               {"completion_tokens", usage.completion_tokens},
               {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
               {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
  if (usage.has_experts) {
    json["expert_hits"] = usage.expert_hits;
    json["expert_misses"] = usage.expert_misses;
    json["expert_demand_bytes"] = usage.expert_demand_bytes;
    json["expert_stall_seconds"] = usage.expert_stall_seconds;
  }
  return json;
}

std::string AnswerText(const AnswerHead& head, std::vector<std::string> choices,
                       const AnswerUsage& usage) {
  std::string list = "[";
  for (std::string& choice : choices) {
    absl::StrAppend(&list, list.size() > 1 ? "," : "", choice);
    choice = std::string();
  }
  list += "]";
  std::string text = WithMember(DumpJson(HeadJson(head, /*chunk=*/false)), "choices", list);
  return WithMember(std::move(text), "usage", DumpJson(UsageJson(usage)));
}

std::string ChunkText(const AnswerHead& head, absl::string_view choice, absl::string_view usage) {
  std::string text = WithMember(DumpJson(HeadJson(head, /*chunk=*/true)), "choices",
                                absl::StrCat("[", choice, "]"));
  return usage.empty() ? text : WithMember(std::move(text), "usage", usage);
}

std::string SseEvent(absl::string_view json) { return absl::StrCat("data: ", json, "\n\n"); }

ChoiceRenderer::ChoiceRenderer(const AnswerHead& head, int64_t index, const std::string& echo)
    : endpoint_(head.endpoint), id_(head.id), index_(index), text_(echo) {}

void ChoiceRenderer::TakeText(const std::string& text, bool last) {
  if (!parser_.has_value()) {
    text_ += text;
    return;
  }
  const auto take = [this](ToolCallParser::Output out) {
    text_ += out.content;
    std::move(out.calls.begin(), out.calls.end(), std::back_inserter(calls_));
  };
  take(parser_->Feed(text));
  if (last) take(parser_->Finish());
}

void ChoiceRenderer::Take(const v1::GenerateResponse& message) {
  finish_ = message.finish_reason();
  TakeText(message.text(), finish_ != v1::FINISH_REASON_UNSPECIFIED);
  for (const v1::TokenLogprob& token : message.logprobs()) TakeLogprob(token);
}

void ChoiceRenderer::TakeLogprob(const v1::TokenLogprob& token) {
  if (endpoint_ == OpenAiEndpoint::kChat) {
    return AppendElement(ChatLogprob(token), &logprobs_.tokens);
  }
  AppendElement(LegacyName(token.token()), &logprobs_.tokens);
  AppendElement(Finite(token.logprob()), &logprobs_.values);
  AppendElement(LegacyTop(token), &logprobs_.tops);
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
  return WithMember(std::move(text), "finish_reason", DumpJson(FinishJson()));
}

Json ChoiceRenderer::TakeCalls(bool numbered) {
  Json list = Json::array();
  for (const ToolCall& call : calls_) {
    Json json = {{"id", absl::StrCat("call_", id_, "_", index_, "_", calls_taken_)},
                 {"type", "function"},
                 {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
    if (numbered) json["index"] = calls_taken_;
    ++calls_taken_;
    list.push_back(std::move(json));
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
    default:  // STOP, STOP_STRING, and what a newer worker may tell
      return calls_taken_ > 0 ? "tool_calls" : "stop";
  }
}

std::optional<std::string> ChoiceRenderer::TakeDelta() {
  const bool last = finish_ != v1::FINISH_REASON_UNSPECIFIED;
  const bool has_content = !text_.empty() || !logprobs_.tokens.empty();
  if (!has_content && calls_.empty() && !last) return std::nullopt;
  Json choice = {{"index", index_}};
  if (endpoint_ == OpenAiEndpoint::kCompletions) {
    choice["text"] = std::exchange(text_, "");
  } else {
    Json delta = Json::object();
    if (!std::exchange(role_sent_, true)) delta["role"] = "assistant";
    if (has_content) delta["content"] = std::exchange(text_, "");
    if (!calls_.empty()) delta["tool_calls"] = TakeCalls(/*numbered=*/true);
    choice["delta"] = std::move(delta);
  }
  return WithEnd(choice);
}

size_t ChoiceRenderer::bytes() const {
  size_t bytes = text_.size() + logprobs_.tokens.size() + logprobs_.values.size() +
                 logprobs_.tops.size() + logprobs_.offsets.size();
  for (const ToolCall& call : calls_) bytes += call.name.size() + call.arguments.size();
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
    if (!calls_.empty()) message["tool_calls"] = TakeCalls(/*numbered=*/false);
    choice["message"] = std::move(message);
  }
  return WithEnd(choice);
}

}  // namespace tidepool::service
