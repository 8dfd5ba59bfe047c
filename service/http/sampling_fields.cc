#include "service/http/sampling_fields.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"

namespace tidepool::service {
namespace {

void ReadSeed(JsonFields* fields, v1::Sampling* sampling) {
  const Json* seed = fields->Find("seed", {"integer"});
  if (seed == nullptr) return;
  // A seed may be any unsigned 64-bit integer. Negative seeds are also accepted.
  if (seed->is_number_unsigned()) return sampling->set_seed(seed->get<uint64_t>());
  const std::optional<int64_t> number = WholeNumber(*seed);
  if (!number.has_value()) return fields->Fail("seed", "must be an integer");
  sampling->set_seed(static_cast<uint64_t>(*number));
}

void ReadLogitBias(JsonFields* fields, v1::Sampling* sampling) {
  const Json* biases = fields->Object("logit_bias");
  if (biases == nullptr) return;
  for (const auto& [key, value] : biases->items()) {
    if (!value.is_number()) {
      return fields->Fail(
          "logit_bias",
          "must have token ids or texts as keys, and numbers from -100 to 100 as values");
    }
    const auto bias = static_cast<float>(value.get<double>());
    int32_t id = 0;
    const bool digits = !key.empty() && std::all_of(key.begin(), key.end(), absl::ascii_isdigit);
    if (digits && !absl::SimpleAtoi(key, &id)) {
      return fields->Fail("logit_bias", absl::StrCat("has the key ", base::Quoted(key),
                                                     "; the largest token id is ", INT32_MAX));
    }
    if (absl::SimpleAtoi(key, &id)) {
      (*sampling->mutable_logit_bias())[id] = bias;
    } else {
      (*sampling->mutable_logit_bias_text())[key] = bias;
    }
  }
}

// Reads a list of texts. Returns nullopt if it is missing, and an empty list after an error.
std::optional<std::vector<std::string>> ReadTexts(JsonFields* fields, const char* name) {
  const Json* list = fields->Array(name);
  if (list == nullptr) return std::nullopt;
  std::vector<std::string> texts;
  for (const Json& text : *list) {
    if (!text.is_string()) {
      fields->Fail(name, "must be a list of strings");
      return std::vector<std::string>();
    }
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

void ReadDry(JsonFields* fields, v1::Sampling* sampling) {
  if (const auto value = fields->Number("dry_multiplier")) sampling->set_dry_multiplier(*value);
  if (const auto value = fields->Number("dry_base")) sampling->set_dry_base(*value);
  if (const auto value = fields->Integer("dry_allowed_length", 0, INT32_MAX)) {
    sampling->set_dry_allowed_length(static_cast<int32_t>(*value));
  }
  if (const auto value = fields->Integer("dry_penalty_last_n", -1, INT32_MAX)) {
    sampling->set_dry_penalty_last_n(static_cast<int32_t>(*value));
  }
  const auto breakers = ReadTexts(fields, "dry_sequence_breakers");
  if (!breakers.has_value()) return;
  if (breakers->empty()) {
    fields->Fail("dry_sequence_breakers", "is empty; leave it out to use the default");
  }
  sampling->mutable_dry_sequence_breakers()->Assign(breakers->begin(), breakers->end());
}

void ReadTokenLimits(JsonFields* fields, v1::Sampling* sampling) {
  if (const auto words = ReadTexts(fields, "bad_words")) {
    sampling->mutable_bad_words()->Assign(words->begin(), words->end());
  }
  const Json* list = fields->Find("allowed_token_ids", {"array"});
  if (fields->IsEmpty("allowed_token_ids", list)) {
    fields->Fail("allowed_token_ids", "is empty; leave it out to allow all tokens");
  }
  for (const int32_t id : fields->Ids("allowed_token_ids")) sampling->add_allowed_token_ids(id);
}

}  // namespace

void ReadSampling(JsonFields* fields, v1::Sampling* sampling) {
  if (const auto value = fields->Number("temperature")) sampling->set_temperature(*value);
  if (const auto value = fields->Number("top_p")) sampling->set_top_p(*value);
  // In vLLM, -1 and 0 both mean that all tokens are kept.
  if (const auto value = fields->Integer("top_k", -1, INT32_MAX)) {
    sampling->set_top_k(static_cast<int32_t>(std::max<int64_t>(*value, 0)));
  }
  if (const auto value = fields->Number("min_p")) sampling->set_min_p(*value);
  if (const auto value = fields->Number("repetition_penalty")) {
    sampling->set_repetition_penalty(*value);
  }
  if (const auto value = fields->Number("frequency_penalty")) {
    sampling->set_frequency_penalty(*value);
  }
  if (const auto value = fields->Number("presence_penalty")) sampling->set_presence_penalty(*value);
  ReadSeed(fields, sampling);
  ReadLogitBias(fields, sampling);
  if (const auto value = fields->Number("typical_p")) sampling->set_typical_p(*value);
  // In llama.cpp, negative numbers keep all tokens, as 0 does.
  if (const auto value = fields->Number("top_n_sigma")) {
    sampling->set_top_n_sigma(std::max(*value, 0.0f));
  }
  if (const auto value = fields->Number("xtc_probability")) sampling->set_xtc_probability(*value);
  if (const auto value = fields->Number("xtc_threshold")) sampling->set_xtc_threshold(*value);
  ReadDry(fields, sampling);
  ReadTokenLimits(fields, sampling);
  fields->NotServed("use_beam_search", false);
  fields->NotServed("length_penalty", 1);
}

}  // namespace tidepool::service
