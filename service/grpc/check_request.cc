#include "service/grpc/check_request.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "nlohmann/json.hpp"
#include "service/auth/caller.h"
#include "service/base/chat_roles.h"
#include "service/grpc/check_request.h"
#include "service/grpc/convert.h"
#include "service/tools/tool_list.h"

namespace tidepool::service {
namespace {

constexpr size_t kMaxIdBytes = 128;
constexpr uint64_t kMaxResumeAfter = INT32_MAX;
constexpr int kMaxBiasTexts = 1024;
constexpr size_t kMaxBiasTextBytes = 1024;
// A log line of a response has the request's id followed by a number. This is the maximum size of
// that number.
constexpr size_t kMaxNumberBytes = 4;

absl::Status Refuse(absl::string_view field, absl::string_view found, absl::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", found, "; accepted: ", accepted));
}

absl::Status NotServed(absl::string_view field) {
  return absl::UnimplementedError(absl::StrCat(field, " is not supported yet; leave it unset"));
}

// The engine checks the ranges of parameters, with its own functions. The vocabulary is not known
// here, so any token id from 0 on is accepted. The fields that the engine never gets are checked
// below.
constexpr int kAnyVocabulary = INT32_MAX;

absl::Status CheckBiasTexts(const v1::Sampling& sampling) {
  if (sampling.logit_bias_text_size() > kMaxBiasTexts) {
    return Refuse("logit_bias_text", absl::StrCat(sampling.logit_bias_text_size(), " entries"),
                  absl::StrCat("at most ", kMaxBiasTexts));
  }
  for (const auto& [text, bias] : sampling.logit_bias_text()) {
    if (text.empty() || text.size() > kMaxBiasTextBytes) {
      return Refuse("logit_bias_text key", absl::StrCat(text.size(), " bytes"),
                    absl::StrCat("1 to ", kMaxBiasTextBytes));
    }
    RETURN_IF_ERROR(base::CheckUtf8(text, "logit_bias_text key"));
    if (bias >= -100 && bias <= 100) continue;
    return Refuse("logit_bias_text", absl::StrCat(bias, " for ", base::Quoted(text)),
                  "-100 to 100");
  }
  return absl::OkStatus();
}

absl::Status CheckParameters(const v1::GenerateRequest& request) {
  const engine::SamplingParams sampling = FromProto(request.sampling(), engine::SamplingParams());
  RETURN_IF_ERROR(sampling.Validate(kAnyVocabulary));
  engine::StoppingParams stopping = FromProto(request.stopping());
  RETURN_IF_ERROR(stopping.Validate(kAnyVocabulary));
  const bool limited = request.stopping().has_max_tokens();
  if (limited && stopping.max_tokens == 0 && !request.echo() && !request.has_prompt_logprobs()) {
    return Refuse("max_tokens", "0", "1 or more (0 only with echo or prompt_logprobs)");
  }
  if (limited && stopping.min_tokens > stopping.max_tokens) {
    return Refuse("min_tokens", absl::StrCat(stopping.min_tokens),
                  absl::StrCat("0 to max_tokens, ", stopping.max_tokens));
  }
  RETURN_IF_ERROR(CheckBiasTexts(request.sampling()));
  for (const std::string& stop : stopping.stop) RETURN_IF_ERROR(base::CheckUtf8(stop, "stop"));
  for (const std::string& word : sampling.bad_words) {
    RETURN_IF_ERROR(base::CheckUtf8(word, "bad_words"));
  }
  for (const std::string& breaker : sampling.dry_sequence_breakers) {
    RETURN_IF_ERROR(base::CheckUtf8(breaker, "dry_sequence_breakers"));
  }
  return absl::OkStatus();
}

enum class JsonKind { kArray, kObject };

// Parsed JSON needs many times the memory of its text, so the text must be short.
constexpr size_t kMaxJsonBytes = 1 << 20;

absl::Status CheckJson(absl::string_view field, const std::string& text, JsonKind kind) {
  if (text.size() > kMaxJsonBytes) {
    return Refuse(field, absl::StrCat(text.size(), " bytes"), "up to 1 MiB");
  }
  RETURN_IF_ERROR(base::CheckUtf8(text, field));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (kind == JsonKind::kArray ? json.is_array() : json.is_object()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is not a JSON ", kind == JsonKind::kArray ? "array" : "object"));
}

absl::Status CheckInput(const v1::GenerateRequest& request) {
  if (request.parse_output() && !request.has_chat()) {
    return absl::InvalidArgumentError("parse_output needs a chat; send a chat, or unset the field");
  }
  switch (request.input_case()) {
    case v1::GenerateRequest::kText:
      if (request.text().empty()) return Refuse("text", "empty", "1 byte or more");
      return base::CheckUtf8(request.text(), "text");
    case v1::GenerateRequest::kTokenIds:
      if (request.token_ids().ids_size() == 0) return Refuse("token_ids", "empty", "1 id or more");
      return absl::OkStatus();
    case v1::GenerateRequest::kChat:
      return CheckChat(request.chat());
    case v1::GenerateRequest::INPUT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("no input: set one of text, token_ids and chat");
}

// Checks what the response of a chat may contain.
absl::Status CheckChatOutput(const v1::GenerateRequest& request) {
  if (!request.has_chat()) {
    if (!request.has_thinking_budget_tokens()) return absl::OkStatus();
    return absl::InvalidArgumentError("thinking_budget_tokens needs a chat; remove it");
  }
  if (request.thinking_budget_tokens() < 0) {
    return Refuse("thinking_budget_tokens", absl::StrCat(request.thinking_budget_tokens()),
                  "0 or more");
  }
  const v1::Chat& chat = request.chat();
  if (!v1::ToolChoice::Mode_IsValid(chat.tool_choice().mode())) {
    return Refuse("chat.tool_choice.mode", absl::StrCat(chat.tool_choice().mode()),
                  "AUTO, NONE or REQUIRED");
  }
  const bool parallel = !chat.has_parallel_tool_calls() || chat.parallel_tool_calls();
  ASSIGN_OR_RETURN(const CallRules rules, RulesOf(chat.tools_json(), chat.tool_choice(), parallel));
  if ((rules.required || rules.restricts()) && request.stopping().ignore_eos()) {
    return absl::InvalidArgumentError(
        "ignore_eos does not work with constrained tool calls; remove one of them");
  }
  return absl::OkStatus();
}

absl::Status CheckUnserved(const v1::GenerateRequest& request) {
  if (request.has_adapter()) return NotServed("adapter");
  return absl::OkStatus();
}

absl::Status CheckChoices(const v1::GenerateRequest& request) {
  if (!request.has_n()) return absl::OkStatus();
  if (request.n() < 1 || request.n() > kMaxChoices) {
    return Refuse("n", absl::StrCat(request.n()), absl::StrCat("1 to ", kMaxChoices));
  }
  if (request.n() == 1) return absl::OkStatus();
  if (request.resume_after() > 0) {
    return absl::InvalidArgumentError(
        "resume_after does not work with n above 1; send the request without it: its responses "
        "start from the beginning");
  }
  if (request.request_id().size() > kMaxIdBytes - kMaxNumberBytes) {
    return Refuse("request_id", absl::StrCat(request.request_id().size(), " bytes"),
                  absl::StrCat("at most ", kMaxIdBytes - kMaxNumberBytes, " with n above 1"));
  }
  return absl::OkStatus();
}

// The worker compiles the constraint, and checks everything else.
absl::Status CheckConstraint(const v1::GenerateRequest& request) {
  constexpr size_t kMaxConstraintBytes = 1 << 20;
  if (request.constraint_case() == v1::GenerateRequest::CONSTRAINT_NOT_SET) {
    if (request.whitespace_pattern().empty() && !request.coerce_one_of()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "whitespace_pattern and coerce_one_of need json_schema; remove them");
  }
  size_t bytes = request.json_schema().size() + request.regex().size() + request.grammar().size() +
                 request.whitespace_pattern().size();
  for (const std::string& text : request.choice().texts()) bytes += text.size();
  if (bytes > kMaxConstraintBytes) {
    return Refuse("the constraint", absl::StrCat(bytes, " bytes"), "up to 1 MiB");
  }
  if (request.stopping().ignore_eos()) {
    return absl::InvalidArgumentError(
        "ignore_eos does not work with constrained output; remove one of them");
  }
  return absl::OkStatus();
}

absl::Status CheckLogprobs(const v1::GenerateRequest& request) {
  const auto in_range = [](int32_t top) { return top >= 0 && top <= engine::kMaxTopLogprobs; };
  const std::string range = absl::StrCat("0 to ", engine::kMaxTopLogprobs);
  if (!in_range(request.top_logprobs())) {
    return Refuse("top_logprobs", absl::StrCat(request.top_logprobs()), range);
  }
  if (request.top_logprobs() > 0 && !request.logprobs()) {
    return absl::InvalidArgumentError("top_logprobs needs logprobs: set logprobs to true");
  }
  if (request.processed_logprobs() && !request.logprobs()) {
    return absl::InvalidArgumentError("processed_logprobs needs logprobs: set logprobs to true");
  }
  if (in_range(request.prompt_logprobs())) return absl::OkStatus();
  return Refuse("prompt_logprobs", absl::StrCat(request.prompt_logprobs()), range);
}

// Refuses the fields that cannot work with a session. A session's log has exactly one response
// after each prompt, and it stores messages as the template rendered them.
absl::Status CheckWithSession(const v1::GenerateRequest& request) {
  const v1::Chat& chat = request.chat();
  const char* field = request.n() > 1                 ? "n above 1"
                      : request.echo()                ? "echo"
                      : request.has_prompt_logprobs() ? "prompt_logprobs"
                      : chat.continue_final_message() ? "chat.continue_final_message"
                      : chat.has_add_generation_prompt() && !chat.add_generation_prompt()
                          ? "chat.add_generation_prompt = false"
                          : nullptr;
  if (field == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " does not work with a session_id; remove one of them"));
}

}  // namespace

absl::Status CheckChat(const v1::Chat& chat) {
  if (chat.messages_size() == 0) return Refuse("chat.messages", "empty", "1 message or more");
  for (int i = 0; i < chat.messages_size(); ++i) {
    const v1::ChatMessage& message = chat.messages(i);
    const std::string name = absl::StrCat("chat.messages[", i, "].");
    if (!IsChatRole(message.role())) {
      return Refuse(name + "role", base::Quoted(message.role()), absl::StrJoin(kChatRoles, ", "));
    }
    RETURN_IF_ERROR(base::CheckUtf8(message.content(), name + "content"));
    RETURN_IF_ERROR(base::CheckUtf8(message.name(), name + "name"));
    RETURN_IF_ERROR(base::CheckUtf8(message.tool_call_id(), name + "tool_call_id"));
    RETURN_IF_ERROR(base::CheckUtf8(message.reasoning_content(), name + "reasoning_content"));
    if (message.has_tool_calls_json()) {
      RETURN_IF_ERROR(
          CheckJson(name + "tool_calls_json", message.tool_calls_json(), JsonKind::kArray));
    }
  }
  if (chat.add_generation_prompt() && chat.continue_final_message()) {
    return absl::InvalidArgumentError(
        "chat.add_generation_prompt and chat.continue_final_message are both set; set one of them");
  }
  if (chat.has_tools_json()) {
    RETURN_IF_ERROR(CheckJson("chat.tools_json", chat.tools_json(), JsonKind::kArray));
  }
  if (chat.has_template_kwargs_json()) {
    RETURN_IF_ERROR(
        CheckJson("chat.template_kwargs_json", chat.template_kwargs_json(), JsonKind::kObject));
  }
  return absl::OkStatus();
}

absl::Status CheckSessionId(absl::string_view session_id) {
  bool good = !session_id.empty() && session_id.size() <= kMaxIdBytes;
  for (const char c : session_id) {
    good = good && (absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':');
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "session_id must be 1 to 128 letters, digits, '-', '_', '.' or ':'");
}

absl::Status CheckGenerateRequest(const v1::GenerateRequest& request) {
  RETURN_IF_ERROR(base::CheckUtf8(request.model(), "model"));
  if (request.has_session_id()) RETURN_IF_ERROR(CheckSessionId(request.session_id()));
  if (request.request_id().size() > kMaxIdBytes) {
    return Refuse("request_id", absl::StrCat(request.request_id().size(), " bytes"),
                  absl::StrCat("at most ", kMaxIdBytes));
  }
  RETURN_IF_ERROR(base::CheckUtf8(request.request_id(), "request_id"));
  if (request.has_resume_after() && request.request_id().empty()) {
    return absl::InvalidArgumentError(
        "resume_after needs the request_id of the response to resume");
  }
  if (request.resume_after() > kMaxResumeAfter) {
    return Refuse("resume_after", absl::StrCat(request.resume_after()),
                  absl::StrCat("0 to ", kMaxResumeAfter));
  }
  RETURN_IF_ERROR(CheckUnserved(request));
  RETURN_IF_ERROR(CheckInput(request));
  RETURN_IF_ERROR(CheckChatOutput(request));
  RETURN_IF_ERROR(CheckChoices(request));
  if (request.has_session_id()) RETURN_IF_ERROR(CheckWithSession(request));
  RETURN_IF_ERROR(CheckParameters(request));
  RETURN_IF_ERROR(CheckConstraint(request));
  RETURN_IF_ERROR(CheckLogprobs(request));
  if (request.priority() < kLowestPriority || request.priority() > kHighestPriority) {
    return Refuse("priority", absl::StrCat(request.priority()),
                  absl::StrCat(kLowestPriority, " to ", kHighestPriority));
  }
  return absl::OkStatus();
}

namespace {

// A field that workers of some older releases ignore.
struct LaterField {
  int32_t since;  // the first value of `understands` that includes it
  bool present;   // the request has this field
  const char* name;
};

std::vector<LaterField> LaterFields(const v1::GenerateRequest& request) {
  const v1::Chat& chat = request.chat();
  const v1::Sampling& sampling = request.sampling();
  const bool parallel = !chat.has_parallel_tool_calls() || chat.parallel_tool_calls();
  const absl::StatusOr<CallRules> rules = RulesOf(chat.tools_json(), chat.tool_choice(), parallel);
  return {
      {4, request.processed_logprobs(), "processed_logprobs"},
      {3, sampling.has_typical_p(), "sampling.typical_p"},
      {3, sampling.has_top_n_sigma(), "sampling.top_n_sigma"},
      {3, sampling.has_dry_multiplier(), "sampling.dry_multiplier"},
      {3, sampling.has_xtc_probability(), "sampling.xtc_probability"},
      {3, sampling.bad_words_size() > 0, "sampling.bad_words"},
      {3, sampling.allowed_token_ids_size() > 0, "sampling.allowed_token_ids"},
      {3, rules.ok() && rules->restricts(), "chat.tool_choice, parallel_tool_calls or strict"},
      {3, chat.tool_choice().mode() == v1::ToolChoice::NONE, "chat.tool_choice"},
      {3, request.has_thinking_budget_tokens(), "thinking_budget_tokens"},
      {2, request.constraint_case() != v1::GenerateRequest::CONSTRAINT_NOT_SET, "constraint"},
      {1, request.has_prompt_logprobs(), "prompt_logprobs"},
      {1, request.echo(), "echo"},
      {1, request.return_progress(), "return_progress"},
      {1, request.stopping().min_tokens() > 0, "stopping.min_tokens"},
      {1, request.sampling().logit_bias_text_size() > 0, "sampling.logit_bias_text"},
      {1, chat.has_add_generation_prompt(), "chat.add_generation_prompt"},
      {1, chat.continue_final_message(), "chat.continue_final_message"},
      {1,
       std::any_of(chat.messages().begin(), chat.messages().end(),
                   [](const v1::ChatMessage& message) { return message.has_reasoning_content(); }),
       "chat.messages.reasoning_content"},
  };
}

}  // namespace

int32_t NeededToUnderstand(const v1::GenerateRequest& request) {
  int32_t needed = 0;
  for (const LaterField& field : LaterFields(request)) {
    if (field.present) needed = std::max(needed, field.since);
  }
  return needed;
}

absl::Status CheckUnderstood(const v1::GenerateRequest& request, int32_t understands) {
  if (understands >= kUnderstands) return absl::OkStatus();
  for (const LaterField& field : LaterFields(request)) {
    if (!field.present || understands >= field.since) continue;
    return absl::UnimplementedError(
        absl::StrCat(field.name,
                     " is not supported by this model's worker, which has an older release; "
                     "upgrade it"));
  }
  return absl::OkStatus();
}

}  // namespace tidepool::service
