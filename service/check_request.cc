// CheckGenerateRequest and CheckSessionId of convert.h.
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "service/auth/caller.h"
#include "service/convert.h"

namespace tidepool::service {
namespace {

constexpr size_t kMaxIdBytes = 128;
constexpr uint64_t kMaxResumeAfter = INT32_MAX;

absl::Status Refuse(absl::string_view field, absl::string_view found, absl::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", found, "; accepted: ", accepted));
}

absl::Status NotServed(absl::string_view field) {
  return absl::UnimplementedError(absl::StrCat(field, " is not served yet; leave it unset"));
}

// The engine knows the ranges; only what it never sees is checked here. A vocabulary is not known
// yet, so any id of 0 or more passes.
constexpr int kAnyVocabulary = INT32_MAX;

absl::Status CheckParameters(const v1::GenerateRequest& request) {
  if (request.sampling().has_typical_p()) return NotServed("sampling.typical_p");
  RETURN_IF_ERROR(FromProto(request.sampling(), engine::SamplingParams()).Validate(kAnyVocabulary));
  engine::StoppingParams stopping = FromProto(request.stopping());
  if (!request.stopping().has_max_tokens()) stopping.max_tokens = 1;
  RETURN_IF_ERROR(stopping.Validate(kAnyVocabulary));
  for (const std::string& stop : stopping.stop) RETURN_IF_ERROR(engine::CheckUtf8(stop, "stop"));
  return absl::OkStatus();
}

enum class JsonKind { kArray, kObject };

// Parsed, JSON takes many times its bytes.
constexpr size_t kMaxJsonBytes = 1 << 20;

absl::Status CheckJson(absl::string_view field, const std::string& text, JsonKind kind) {
  if (text.size() > kMaxJsonBytes) {
    return Refuse(field, absl::StrCat(text.size(), " bytes"), "up to 1 MiB");
  }
  RETURN_IF_ERROR(engine::CheckUtf8(text, field));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (kind == JsonKind::kArray ? json.is_array() : json.is_object()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is not a JSON ", kind == JsonKind::kArray ? "array" : "object"));
}

absl::Status CheckChat(const v1::Chat& chat) {
  if (chat.messages_size() == 0) return Refuse("chat.messages", "empty", "1 message or more");
  for (int i = 0; i < chat.messages_size(); ++i) {
    const v1::ChatMessage& message = chat.messages(i);
    const std::string name = absl::StrCat("chat.messages[", i, "].");
    if (message.role().empty()) return Refuse(name + "role", "empty", "user, system, ...");
    RETURN_IF_ERROR(engine::CheckUtf8(message.role(), name + "role"));
    RETURN_IF_ERROR(engine::CheckUtf8(message.content(), name + "content"));
    RETURN_IF_ERROR(engine::CheckUtf8(message.name(), name + "name"));
    RETURN_IF_ERROR(engine::CheckUtf8(message.tool_call_id(), name + "tool_call_id"));
    if (message.has_tool_calls_json()) {
      RETURN_IF_ERROR(
          CheckJson(name + "tool_calls_json", message.tool_calls_json(), JsonKind::kArray));
    }
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

absl::Status CheckInput(const v1::GenerateRequest& request) {
  switch (request.input_case()) {
    case v1::GenerateRequest::kText:
      if (request.text().empty()) return Refuse("text", "empty", "1 byte or more");
      return engine::CheckUtf8(request.text(), "text");
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

absl::Status CheckUnserved(const v1::GenerateRequest& request) {
  if (request.has_adapter()) return NotServed("adapter");
  if (request.echo()) return NotServed("echo");
  if (request.has_n() && request.n() < 1) return Refuse("n", absl::StrCat(request.n()), "1");
  if (request.n() > 1) return absl::UnimplementedError("n above 1 is not served yet");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSessionId(absl::string_view session_id) {
  bool good = !session_id.empty() && session_id.size() <= kMaxIdBytes;
  for (const char c : session_id) {
    good = good && (absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':');
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "session_id must be 1 to 128 of letters, digits, '-', '_', '.' and ':'");
}

absl::Status CheckGenerateRequest(const v1::GenerateRequest& request) {
  RETURN_IF_ERROR(engine::CheckUtf8(request.model(), "model"));
  if (request.has_session_id()) RETURN_IF_ERROR(CheckSessionId(request.session_id()));
  if (request.request_id().size() > kMaxIdBytes) {
    return Refuse("request_id", absl::StrCat(request.request_id().size(), " bytes"),
                  absl::StrCat("at most ", kMaxIdBytes));
  }
  RETURN_IF_ERROR(engine::CheckUtf8(request.request_id(), "request_id"));
  if (request.has_resume_after() && request.request_id().empty()) {
    return absl::InvalidArgumentError("resume_after needs the request_id that it resumes");
  }
  if (request.resume_after() > kMaxResumeAfter) {
    return Refuse("resume_after", absl::StrCat(request.resume_after()),
                  absl::StrCat("0 to ", kMaxResumeAfter));
  }
  RETURN_IF_ERROR(CheckUnserved(request));
  RETURN_IF_ERROR(CheckInput(request));
  RETURN_IF_ERROR(CheckParameters(request));
  if (request.top_logprobs() < 0 || request.top_logprobs() > engine::kMaxTopLogprobs) {
    return Refuse("top_logprobs", absl::StrCat(request.top_logprobs()),
                  absl::StrCat("0 to ", engine::kMaxTopLogprobs));
  }
  if (request.top_logprobs() > 0 && !request.logprobs()) {
    return absl::InvalidArgumentError("top_logprobs needs logprobs: set logprobs to true");
  }
  if (request.priority() < kLowestPriority || request.priority() > kHighestPriority) {
    return Refuse("priority", absl::StrCat(request.priority()),
                  absl::StrCat(kLowestPriority, " to ", kHighestPriority));
  }
  return absl::OkStatus();
}

}  // namespace tidepool::service
