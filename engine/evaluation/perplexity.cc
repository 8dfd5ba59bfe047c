#include "engine/evaluation/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/evaluation/logits.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kMinContext = 4;

// Returns -log softmax(logits)[token].
double NegativeLogLikelihood(absl::Span<const float> logits, int32_t token) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
  return std::log(sum) - static_cast<double>(logits[token] - largest);
}

absl::Status Validate(const TransformerModel& model, absl::Span<const int32_t> ids,
                      const PerplexityOptions& options) {
  const int64_t trained = model.config().context_length;
  if (options.context < kMinContext || options.context > trained) {
    return absl::InvalidArgumentError(absl::StrCat("chunks of ", options.context,
                                                   " tokens, expected ", kMinContext, " to ",
                                                   trained, ", the model's context"));
  }
  if (static_cast<int64_t>(ids.size()) < 2 * options.context) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text has ", ids.size(), " tokens, expected at least ",
                     2 * options.context, " (two chunks): use a longer text or a smaller context"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Perplexity> ComputePerplexity(TransformerModel* model, absl::Span<const int32_t> ids,
                                             const PerplexityOptions& options) {
  RETURN_IF_ERROR(Validate(*model, ids, options));
  Perplexity result;
  result.chunks = static_cast<int64_t>(ids.size()) / options.context;
  if (options.chunks > 0) result.chunks = std::min(result.chunks, options.chunks);
  double sum = 0;
  double squares = 0;
  for (int64_t chunk = 0; chunk < result.chunks; ++chunk) {
    const absl::Span<const int32_t> text = ids.subspan(chunk * options.context, options.context);
    std::vector<int32_t> tokens(text.begin(), text.end());
    if (options.first_token.has_value()) tokens.front() = *options.first_token;
    // The logits at a position are used to score the token at the next position.
    const auto score = [&](int64_t position, absl::Span<const float> logits) {
      RETURN_IF_ERROR(CheckFinite(chunk * options.context + position, logits));
      const double loss = NegativeLogLikelihood(logits, text[position + 1]);
      sum += loss;
      squares += loss * loss;
      ++result.tokens;
      return absl::OkStatus();
    };
    tokens.pop_back();
    RETURN_IF_ERROR(ComputeLogits(
        model, tokens, {.rows = LogitRows::kAll, .first_position = options.context / 2}, score));
    if (options.progress) options.progress(chunk + 1, result.chunks);
  }
  const double count = static_cast<double>(result.tokens);
  const double mean = sum / count;
  const double variance = std::max(0.0, squares / count - mean * mean);
  result.perplexity = std::exp(mean);
  result.standard_error = count > 1 ? std::sqrt(variance / (count - 1)) * result.perplexity : 0;
  return result;
}

}  // namespace tidepool::engine
