#include "service/worker/bias_texts.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::service {

absl::Status AddBiasTexts(const v1::Sampling& sampling, const engine::Tokenizer& tokenizer,
                          engine::SamplingParams* params) {
  if (sampling.logit_bias_text().empty()) return absl::OkStatus();
  // Sorted by text, so that floats are always added in the same order.
  const std::map<std::string, float> texts(sampling.logit_bias_text().begin(),
                                           sampling.logit_bias_text().end());
  std::map<int32_t, float> biases(params->logit_bias.begin(), params->logit_bias.end());
  for (const auto& [text, bias] : texts) {
    ASSIGN_OR_RETURN(
        const std::vector<int32_t> ids,
        tokenizer.Encode(text, engine::SpecialTokens::kParse, engine::AddBos::kContinue));
    if (ids.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("logit_bias_text of ", base::Quoted(text),
                                                     " has no token in this vocabulary"));
    }
    for (const int32_t id : ids) biases[id] = std::clamp(biases[id] + bias, -100.0f, 100.0f);
  }
  params->logit_bias.assign(biases.begin(), biases.end());
  return absl::OkStatus();
}

}  // namespace tidepool::service
