#include "service/http/openai_request.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/sampling/request.h"
#include "kernels/base/status_macros.h"
#include "service/auth/caller.h"
#include "service/grpc/check_request.h"
#include "service/http/chat_messages.h"
#include "service/http/constraint_fields.h"
#include "service/http/http_error.h"
#include "service/http/json_fields.h"
#include "service/http/sampling_fields.h"

namespace tidepool::service {
namespace {

constexpr int64_t kCompletionMaxTokens = 16;
// Limits the memory of a request, because each choice has a copy of its prompt.
constexpr size_t kMaxPromptBytes = 64 << 20;

void ReadStopping(JsonFields* fields, v1::Stopping* stopping) {
  if (const Json* stop = fields->Find("stop", {"string", "array"})) {
    const Json list = stop->is_array() ? *stop : Json::array({*stop});
    for (const Json& text : list) {
      if (!text.is_string()) return fields->Fail("stop", "must be a string or a list of strings");
      stopping->add_stop(text.get<std::string>());
    }
  }
  for (const int32_t id : fields->Ids("stop_token_ids")) stopping->add_stop_token_ids(id);
  if (fields->Bool("ignore_eos").value_or(false)) stopping->set_ignore_eos(true);
  if (fields->Bool("include_stop_str_in_output").value_or(false)) stopping->set_include_stop(true);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  if (const auto tokens = fields->Integer("max_tokens", 0, kMax)) {
    stopping->set_max_tokens(*tokens);
  }
  if (const auto tokens = fields->Integer("min_tokens", 0, kMax); tokens.value_or(0) > 0) {
    stopping->set_min_tokens(*tokens);
  }
}

// Reads the fields that say which parts of the prompt the response contains, except `echo`.
void ReadPromptParts(JsonFields* fields, OpenAiRequest* out) {
  out->prompt.token_ids = fields->Bool("return_token_ids").value_or(false);
  if (const auto top = fields->Integer("prompt_logprobs", 0, engine::kMaxTopLogprobs)) {
    if (out->stream) {
      fields->Fail("prompt_logprobs", "does not work with streaming; set stream to false");
    }
    out->prompt.prompt_logprobs = static_cast<int32_t>(*top);
  }
  out->return_progress = fields->Bool("return_progress").value_or(false);
  if (out->return_progress && !out->stream) {
    fields->Fail("return_progress", "needs streaming; set stream to true");
  }
}

// Sets the gRPC fields for the parts of the prompt that the response contains.
void AskForPrompt(const OpenAiRequest& out, v1::GenerateRequest* base) {
  const PromptParts& parts = out.prompt;
  if (parts.echo || parts.token_ids || out.continuous_usage) base->set_echo(true);
  if (out.return_progress) base->set_return_progress(true);
  if (!parts.prompt_logprobs.has_value() && !parts.echo_logprobs.has_value()) return;
  base->set_prompt_logprobs(
      std::max(parts.prompt_logprobs.value_or(0), parts.echo_logprobs.value_or(0)));
}

// Reads fields that cannot change the output. Clients of hosted services send them. Only their
// types are checked.
void AcceptHarmless(JsonFields* fields) {
  for (const char* name : {"user", "safety_identifier", "service_tier", "prompt_cache_key",
                           "prompt_cache_retention"}) {
    fields->String(name);
  }
  fields->Object("metadata");
  fields->Object("prompt_cache_options");
  fields->NotServed("store", false);
}

// Reads the fields that both endpoints have, except those that contain the prompt.
void ReadCommon(JsonFields* fields, OpenAiRequest* out, v1::GenerateRequest* base) {
  if (const auto model = fields->String("model")) base->set_model(*model);
  ReadSampling(fields, base->mutable_sampling());
  ReadStopping(fields, base->mutable_stopping());
  out->stream = fields->Bool("stream").value_or(false);
  if (const Json* options = fields->Object("stream_options")) {
    if (!out->stream) fields->Fail("stream_options", "needs streaming; set stream to true");
    JsonFields inner = fields->Inside(*options, "stream_options.");
    out->include_usage = inner.Bool("include_usage").value_or(false);
    inner.NotServed("include_obfuscation", false);
    out->continuous_usage = inner.Bool("continuous_usage_stats").value_or(false);
    if (out->continuous_usage) out->include_usage = true;
    fields->Fail(inner.Done());
  }
  ReadPromptParts(fields, out);
  // In vLLM, lower numbers have priority. In Tidepool, higher numbers have priority.
  if (const auto priority = fields->Integer("priority", -kHighestPriority, -kLowestPriority)) {
    base->set_priority(static_cast<int32_t>(-*priority));
  }
  AcceptHarmless(fields);
  fields->NotServed("skip_special_tokens", true);
  fields->NotServed("spaces_between_special_tokens", true);
  fields->NotServed("add_special_tokens", true);
  fields->NotServed("return_tokens_as_token_ids", false);
  ReadConstraint(fields, base);
  for (const char* name :
       {"truncate_prompt_tokens", "logits_processors", "guided_json", "guided_regex",
        "guided_choice", "guided_grammar", "request_id", "moderation", "kv_transfer_params"}) {
    fields->NotServed(name);
  }
}

// Requests logprobs with `top` alternatives.
void AskLogprobs(int64_t top, v1::GenerateRequest* base) {
  base->set_logprobs(true);
  base->set_top_logprobs(static_cast<int32_t>(top));
}

// Reads logprobs_mode, which is an option of the server in vLLM. Call it after the fields that
// request logprobs were read.
void ReadLogprobsMode(JsonFields* fields, v1::GenerateRequest* base) {
  const std::optional<std::string> mode = fields->String("logprobs_mode");
  if (!mode.has_value() || *mode == "raw_logprobs") return;
  if (*mode != "processed_logprobs") {
    fields->Fail("logprobs_mode", "must be \"raw_logprobs\" or \"processed_logprobs\"");
  } else if (!base->logprobs()) {
    fields->Fail("logprobs_mode", "needs logprobs; set logprobs too");
  }
  base->set_processed_logprobs(true);
}

// Makes n copies of each prompt. If the request has a seed, each copy gets another seed. `prompts`
// are consumed.
absl::Status MakeChoices(int64_t n, std::vector<v1::GenerateRequest> prompts, OpenAiRequest* out) {
  const int64_t count = n * static_cast<int64_t>(prompts.size());
  if (count > OpenAiRequest::kMaxChoices) {
    return FieldError("n", absl::StrCat("asks for ", count, " responses in total; at most ",
                                        OpenAiRequest::kMaxChoices, " are allowed"));
  }
  size_t bytes = 0;
  for (const v1::GenerateRequest& prompt : prompts) {
    bytes += prompt.ByteSizeLong() * static_cast<size_t>(n);
    RETURN_IF_ERROR(CheckGenerateRequest(prompt));
  }
  if (bytes > kMaxPromptBytes) {
    return FieldError(n == 1 ? "prompt" : "n",
                      absl::StrCat("asks for prompts of ", bytes, " bytes in total; at most ",
                                   kMaxPromptBytes, " are allowed"));
  }
  out->n = n;
  out->choices.reserve(count);
  for (v1::GenerateRequest& prompt : prompts) {
    const uint64_t seed = prompt.sampling().seed();
    for (int64_t i = 0; i < n; ++i) {
      v1::GenerateRequest& choice = out->choices.emplace_back(prompt);
      // Only the first choice reports the prompt's log-probabilities. The other choices must
      // generate at least one token.
      if (i > 0) {
        if (choice.has_prompt_logprobs()) choice.set_echo(true);
        choice.clear_prompt_logprobs();
        choice.clear_return_progress();
      }
      // The first choice has the request's seed, so it is the same response as with n = 1. If the
      // request has no seed, a random seed is drawn for each choice.
      if (prompt.sampling().has_seed()) choice.mutable_sampling()->set_seed(seed + i);
    }
  }
  return absl::OkStatus();
}

// Adds a prompt that is a list of token ids, or reports an error.
void AddIds(const Json& ids, const std::string& path, JsonFields* fields,
            std::vector<v1::GenerateRequest>* prompts) {
  v1::GenerateRequest& prompt = prompts->emplace_back();
  for (const Json& id : ids) {
    const std::optional<int64_t> number = WholeNumber(id);
    if (!number.has_value() || *number < 0 || *number > INT32_MAX) {
      return fields->Fail(path, "must contain only token ids");
    }
    prompt.mutable_token_ids()->add_ids(static_cast<int32_t>(*number));
  }
}

// Reads one or more prompts: a text, a list of texts, token ids, or a list of lists of token ids.
std::vector<v1::GenerateRequest> ReadPrompts(JsonFields* fields) {
  std::vector<v1::GenerateRequest> prompts;
  const Json* prompt = fields->Find("prompt", {"string", "array"});
  const bool empty = fields->IsEmpty("prompt", prompt);
  if (prompt == nullptr) {
    fields->Missing("prompt", "is missing");
  } else if (empty) {
    fields->Fail("prompt", prompt->is_array() ? "is empty; send 1 prompt or more"
                                              : "is empty; send 1 byte or more");
  } else if (prompt->is_string()) {
    prompts.emplace_back().set_text(prompt->get<std::string>());
  } else if (!prompt->is_array()) {
    fields->Fail("prompt", "must be a string, a list of strings, or token ids");
  } else if ((*prompt)[0].is_number()) {
    AddIds(*prompt, "prompt", fields, &prompts);
  } else if (prompt->size() > OpenAiRequest::kMaxChoices) {
    fields->Fail("prompt", absl::StrCat("has ", prompt->size(), " entries; at most ",
                                        OpenAiRequest::kMaxChoices, " are allowed"));
  } else {
    for (size_t i = 0; i < prompt->size(); ++i) {
      const Json& one = (*prompt)[i];
      const std::string path = absl::StrCat("prompt[", i, "]");
      if (one.is_string()) {
        prompts.emplace_back().set_text(one.get<std::string>());
      } else if (one.is_array()) {
        AddIds(one, path, fields, &prompts);
      } else {
        fields->Fail(path, "must be a string or a list of token ids");
      }
    }
  }
  return prompts;
}

// Returns the text with which a chat response with echo begins. As in vLLM, this is the last
// message, if its role is assistant.
std::string LastResponse(const v1::Chat& chat) {
  if (chat.messages().empty()) return "";
  const v1::ChatMessage& last = *chat.messages().rbegin();
  return last.role() == "assistant" ? last.content() : "";
}

}  // namespace

absl::StatusOr<OpenAiRequest> ParseCompletionRequest(const Json& body, FieldRecorder* recorder) {
  OpenAiRequest out;
  out.endpoint = OpenAiEndpoint::kCompletions;
  JsonFields fields(body, "", recorder);
  v1::GenerateRequest base;
  ReadCommon(&fields, &out, &base);
  if (!base.stopping().has_max_tokens()) {
    base.mutable_stopping()->set_max_tokens(kCompletionMaxTokens);
  }
  std::vector<v1::GenerateRequest> prompts = ReadPrompts(&fields);
  const int64_t n = fields.Integer("n", 1, OpenAiRequest::kMaxChoices).value_or(1);
  // The default of best_of is n, so the value n changes nothing.
  fields.NotServed("best_of", n);
  fields.NotServed("suffix", "");
  out.prompt.echo = fields.Bool("echo").value_or(false);
  if (const auto top = fields.Integer("logprobs", 0, engine::kMaxTopLogprobs)) {
    AskLogprobs(*top, &base);
    if (out.prompt.echo) out.prompt.echo_logprobs = static_cast<int32_t>(*top);
  }
  ReadLogprobsMode(&fields, &base);
  RETURN_IF_ERROR(fields.Done());
  AskForPrompt(out, &base);
  for (v1::GenerateRequest& prompt : prompts) prompt.MergeFrom(base);
  RETURN_IF_ERROR(MakeChoices(n, std::move(prompts), &out));
  return out;
}

absl::StatusOr<OpenAiRequest> ParseChatRequest(const Json& body, FieldRecorder* recorder) {
  OpenAiRequest out;
  out.endpoint = OpenAiEndpoint::kChat;
  JsonFields fields(body, "", recorder);
  v1::GenerateRequest base;
  ReadCommon(&fields, &out, &base);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  if (const auto tokens = fields.Integer("max_completion_tokens", 1, kMax)) {
    if (base.stopping().has_max_tokens() && base.stopping().max_tokens() != *tokens) {
      fields.Fail("max_completion_tokens", "and max_tokens are both set; send one of them");
    }
    base.mutable_stopping()->set_max_tokens(*tokens);
  }
  ReadChat(&fields, base.mutable_chat());
  ReadThinkingBudget(&fields, &base);
  out.tools = base.chat().has_tools_json();
  base.set_parse_output(true);
  const int64_t n = fields.Integer("n", 1, OpenAiRequest::kMaxChoices).value_or(1);
  const bool logprobs = fields.Bool("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", 0, engine::kMaxTopLogprobs);
  if (logprobs) AskLogprobs(top.value_or(0), &base);
  if (!logprobs && top.value_or(0) > 0) {
    fields.Fail("top_logprobs", "needs logprobs; set logprobs to true");
  }
  ReadLogprobsMode(&fields, &base);
  fields.NotServed("modalities", Json::array({"text"}));
  if (fields.Bool("echo").value_or(false)) out.prompt.echo_text = LastResponse(base.chat());
  for (const char* name : {"audio", "prediction", "web_search_options", "verbosity"}) {
    fields.NotServed(name);
  }
  RETURN_IF_ERROR(fields.Done());
  AskForPrompt(out, &base);
  RETURN_IF_ERROR(MakeChoices(n, {std::move(base)}, &out));
  return out;
}

}  // namespace tidepool::service
