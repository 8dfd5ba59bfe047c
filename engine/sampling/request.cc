#include "engine/sampling/request.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

constexpr size_t kMaxLogitBias = 1024;
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxStopTokens = 1024;
constexpr size_t kMaxSamplingTexts = 128;
constexpr size_t kMaxBreakerBytes = 64;
constexpr size_t kMaxBadWordBytes = 256;

absl::Status Reject(absl::string_view field, absl::string_view found, absl::string_view range) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", found, "; it must be ", range));
}

// The comparison is written so that NaN is refused.
absl::Status CheckRange(absl::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Reject(field, absl::StrCat(value), absl::StrCat("from ", low, " to ", high));
}

absl::Status CheckAboveZero(absl::string_view field, float value) {
  if (value > 0 && std::isfinite(value)) return absl::OkStatus();
  return Reject(field, absl::StrCat(value), "above 0 and finite");
}

absl::Status CheckAtLeast(absl::string_view field, float value, float low) {
  if (value >= low && std::isfinite(value)) return absl::OkStatus();
  return Reject(field, absl::StrCat(value), absl::StrCat("at least ", low, " and finite"));
}

absl::Status CheckShare(absl::string_view field, float value) {
  if (value > 0 && value <= 1) return absl::OkStatus();
  return Reject(field, absl::StrCat(value), "above 0 and at most 1");
}

absl::Status CheckToken(absl::string_view field, int32_t id, int vocab_size) {
  if (id >= 0 && id < vocab_size) return absl::OkStatus();
  return Reject(field, absl::StrCat(id), absl::StrCat("a token id from 0 to ", vocab_size - 1));
}

absl::Status CheckCount(absl::string_view field, size_t count, size_t limit) {
  if (count <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", count, " entries; at most ", limit, " are allowed"));
}

absl::Status CheckTexts(absl::string_view field, const std::vector<std::string>& texts,
                        size_t max_texts, size_t max_bytes) {
  RETURN_IF_ERROR(CheckCount(field, texts.size(), max_texts));
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty() && texts[i].size() <= max_bytes) continue;
    return Reject(absl::StrCat(field, "[", i, "]"), absl::StrCat(texts[i].size(), " bytes long"),
                  absl::StrCat("1 to ", max_bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status CheckDry(const SamplingParams& params) {
  RETURN_IF_ERROR(CheckAtLeast("dry_multiplier", params.dry_multiplier, 0));
  RETURN_IF_ERROR(CheckAtLeast("dry_base", params.dry_base, 1));
  if (params.dry_allowed_length < 0) {
    return Reject("dry_allowed_length", absl::StrCat(params.dry_allowed_length), "at least 0");
  }
  if (params.dry_penalty_last_n < -1) {
    return Reject("dry_penalty_last_n", absl::StrCat(params.dry_penalty_last_n),
                  "at least -1 (-1: all tokens)");
  }
  return CheckTexts("dry_sequence_breakers", params.dry_sequence_breakers, kMaxSamplingTexts,
                    kMaxBreakerBytes);
}

}  // namespace

bool UsesDry(const SamplingParams& params) {
  return params.dry_multiplier != 0 && params.dry_penalty_last_n != 0;
}

absl::Status SamplingParams::Validate(int vocab_size) const {
  RETURN_IF_ERROR(CheckRange("temperature", temperature, 0, 100));
  if (top_k < 0) return Reject("top_k", absl::StrCat(top_k), "at least 0 (0: all tokens)");
  RETURN_IF_ERROR(CheckShare("top_p", top_p));
  RETURN_IF_ERROR(CheckRange("min_p", min_p, 0, 1));
  RETURN_IF_ERROR(CheckAboveZero("repetition_penalty", repetition_penalty));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", frequency_penalty, -2, 2));
  RETURN_IF_ERROR(CheckRange("presence_penalty", presence_penalty, -2, 2));
  RETURN_IF_ERROR(CheckCount("logit_bias", logit_bias.size(), kMaxLogitBias));
  for (const auto& [id, bias] : logit_bias) {
    RETURN_IF_ERROR(CheckToken("logit_bias key", id, vocab_size));
    RETURN_IF_ERROR(CheckRange(absl::StrCat("logit_bias of token ", id), bias, -100, 100));
  }
  RETURN_IF_ERROR(CheckShare("typical_p", typical_p));
  RETURN_IF_ERROR(CheckAtLeast("top_n_sigma", top_n_sigma, 0));
  RETURN_IF_ERROR(CheckRange("xtc_probability", xtc_probability, 0, 1));
  RETURN_IF_ERROR(CheckRange("xtc_threshold", xtc_threshold, 0, 1));
  RETURN_IF_ERROR(CheckDry(*this));
  RETURN_IF_ERROR(CheckTexts("bad_words", bad_words, kMaxSamplingTexts, kMaxBadWordBytes));
  for (const int32_t id : allowed_token_ids) {
    RETURN_IF_ERROR(CheckToken("allowed_token_ids", id, vocab_size));
  }
  return absl::OkStatus();
}

int64_t LimitMaxTokens(std::optional<int64_t> asked, int64_t room) {
  return asked.has_value() ? std::min(*asked, room) : room;
}

absl::Status StoppingParams::Validate(int vocab_size) const {
  if (max_tokens < 0) return Reject("max_tokens", absl::StrCat(max_tokens), "at least 0");
  if (min_tokens < 0) return Reject("min_tokens", absl::StrCat(min_tokens), "at least 0");
  RETURN_IF_ERROR(CheckTexts("stop", stop, kMaxStops, kMaxStopBytes));
  RETURN_IF_ERROR(CheckCount("stop_token_ids", stop_token_ids.size(), kMaxStopTokens));
  for (const int32_t id : stop_token_ids) {
    RETURN_IF_ERROR(CheckToken("stop_token_ids", id, vocab_size));
  }
  return absl::OkStatus();
}

absl::Status GenerationRequest::Validate(int vocab_size, int64_t context_length) const {
  if (token_ids.empty()) return absl::InvalidArgumentError("the prompt is empty");
  const int64_t tokens = token_ids.size();
  if (prompt_length < 1 || prompt_length > tokens) {
    return Reject("prompt_length", absl::StrCat(prompt_length), absl::StrCat("from 1 to ", tokens));
  }
  if (prompt_length >= context_length || tokens > context_length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", prompt_length, " tokens and ", tokens - prompt_length,
        " earlier output tokens; this model's maximum context length is ", context_length,
        " tokens, for both and at least one more: shorten the prompt or raise "
        "--context"));
  }
  for (const int32_t id : token_ids) RETURN_IF_ERROR(CheckToken("token_ids", id, vocab_size));
  RETURN_IF_ERROR(sampling.Validate(vocab_size));
  RETURN_IF_ERROR(stopping.Validate(vocab_size));
  if (top_logprobs < 0 || top_logprobs > kMaxTopLogprobs) {
    return Reject("top_logprobs", absl::StrCat(top_logprobs),
                  absl::StrCat("from 0 to ", kMaxTopLogprobs));
  }
  if (top_logprobs > 0 && !logprobs) {
    return absl::InvalidArgumentError("top_logprobs needs logprobs; set both");
  }
  if (processed_logprobs && !logprobs) {
    return absl::InvalidArgumentError("processed_logprobs needs logprobs; set both");
  }
  if (prompt_logprobs.has_value() && (*prompt_logprobs < 0 || *prompt_logprobs > kMaxTopLogprobs)) {
    return Reject("prompt_logprobs", absl::StrCat(*prompt_logprobs),
                  absl::StrCat("from 0 to ", kMaxTopLogprobs));
  }
  if (prompt_logprobs_from < 0 || prompt_logprobs_from > prompt_length) {
    return Reject("prompt_logprobs_from", absl::StrCat(prompt_logprobs_from),
                  absl::StrCat("from 0 to ", prompt_length));
  }
  if (choice < 0) return Reject("choice", absl::StrCat(choice), "at least 0");
  if (credit < 0) return Reject("credit", absl::StrCat(credit), "at least 0");
  return absl::OkStatus();
}

}  // namespace tidepool::engine
