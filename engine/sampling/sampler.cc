#include "engine/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/sampling/philox.h"
#include "engine/sampling/truncation.h"
#include "engine/sampling/weights.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// If there are more candidates, sorting all of them is faster than using a heap.
constexpr size_t kHeapCandidates = 512;
// The probability mass of top_p is usually in this number of candidates.
constexpr size_t kFewCandidates = 64;

// The natural logarithm of a positive, normal number, with an error of at most 1e-14. Uses only
// IEEE operations, because the last bit of libm's result depends on the CPU. With x = 2^e m, ln m
// is computed by the series of atanh((m-1)/(m+1)).
double Log(double x) {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  constexpr double kSqrt2 = 0x1.6a09e667f3bcdp+0;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffff) | 0x3ff0000000000000);
  if (m > kSqrt2) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double square = s * s;  // below 0.0295, so eleven terms are exact to 1e-17
  double series = 0;
  for (int term = 21; term >= 1; term -= 2) series = series * square + 1.0 / term;
  return exponent * kLn2 + 2 * s * series;
}

// Sets a logit. A finite logit stays finite, because extreme parameters must not look like a fault
// of the model.
void SetFinite(float value, float* logit) {
  if (std::isfinite(*logit)) *logit = std::clamp(value, -kLargest, kLargest);
}

// Returns whether tokens must be removed before the draw, or their probabilities are reported.
bool NeedsCandidates(const SampleInput& input) {
  const SamplingParams& params = *input.params;
  return params.top_k > 0 || params.top_p < 1 || params.min_p > 0 || params.typical_p < 1 ||
         params.top_n_sigma > 0 || params.xtc_probability > 0 || input.processed_logprobs;
}

// Returns whether top_p is the only one of the steps 5 to 10. top_k is not looked at.
bool HasOnlyTopP(const SamplingParams& params) {
  return params.top_p < 1 && params.min_p == 0 && params.typical_p == 1 && params.top_n_sigma == 0;
}

// The candidates with smaller weights than this have, together, less weight than top_p excludes.
// `count` candidates have the weight `total`.
double Negligible(double top_p, double total, size_t count) {
  return (1 - top_p) * total / static_cast<double>(count) * 0.999;
}

// The purpose of a random number.
enum class Purpose : uint32_t { kDraw = 0, kXtc = 1 };

// Returns a uniform random number in [0, 1), with 53 bits.
double Uniform(const SampleInput& input, Purpose purpose) {
  const uint64_t seed = input.params->seed;
  const uint64_t at = static_cast<uint64_t>(input.position);
  const std::array<uint32_t, 4> random =
      Philox4x32({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32),
                  static_cast<uint32_t>(input.choice), static_cast<uint32_t>(purpose)},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{random[1]} << 32 | random[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// Returns the error for a request that excludes all tokens, although the model's logits are valid.
absl::Status NothingLeft(const SampleInput& input) {
  std::vector<const char*> limits;
  if (input.allowed != nullptr) limits.push_back("the constraint");
  if (!input.params->allowed_token_ids.empty()) limits.push_back("allowed_token_ids");
  if (!input.params->bad_words.empty()) limits.push_back("bad_words");
  if (!input.forbidden.empty()) limits.push_back("min_tokens");
  return absl::InvalidArgumentError(
      absl::StrCat("no token may follow at output position ", input.position, ": ",
                   absl::StrJoin(limits, " and "), " exclude", limits.size() == 1 ? "s" : "",
                   " all tokens of the vocabulary; change the request"));
}

}  // namespace

bool NeedsOnlyArgMax(const SamplingParams& params) {
  return params.temperature == 0 && params.logit_bias.empty() && !NeedsTokenCounts(params) &&
         !UsesDry(params) && params.bad_words.empty() && params.allowed_token_ids.empty();
}

absl::StatusOr<int32_t> ArgMaxToken(const kernels::ArgMax& best) {
  if (best.unsound >= 0) {
    return absl::InternalError(absl::StrCat("the model's logit of token ", best.unsound, " is ",
                                            std::isnan(best.unsound_value) ? "NaN" : "infinite",
                                            ": its weights or arithmetic are broken"));
  }
  if (best.index >= 0) return best.index;
  return absl::InternalError("the model's logits are all -infinity");
}

absl::StatusOr<SampledToken> Sampler::Sample(absl::Span<const float> logits,
                                             const SampleInput& input) {
  CHECK(!logits.empty());
  const absl::Span<const float> adjusted = Adjust(logits, input);
  kernels::ArgMax best = FindBest(adjusted);
  if (best.index < 0 && FindBest(logits).index >= 0) return NothingLeft(input);
  if (best.unsound >= 0) best.unsound = TokenAt(best.unsound);
  int32_t index = 0;
  ASSIGN_OR_RETURN(index, ArgMaxToken(best));
  if (input.params->temperature > 0) index = Draw(adjusted, best.value, input);
  SampledToken token = {.token_id = TokenAt(index), .logprob = std::nullopt};
  if (!input.top_logprobs.has_value()) return token;
  const int32_t top = *input.top_logprobs;
  if (!input.processed_logprobs) {
    token.logprob = Logprob(logits, token.token_id, top);
  } else if (input.params->temperature > 0) {
    token.logprob = DrawnLogprob(token.token_id, top);
  } else {
    token.logprob = Logprob(adjusted, token.token_id, top);
  }
  return token;
}

absl::StatusOr<TokenLogprob> Sampler::Score(absl::Span<const float> logits, int32_t token,
                                            int32_t top) {
  CHECK_LT(static_cast<size_t>(token), logits.size());
  RETURN_IF_ERROR(ArgMaxToken(FindBest(logits)).status());
  TokenLogprob scored = Logprob(logits, token, top);
  const Candidate own{logits[token], token};
  scored.rank = 1;
  for (size_t i = 0; i < logits.size(); ++i) {
    scored.rank += Better({logits[i], static_cast<int32_t>(i)}, own);
  }
  return scored;
}

// Returns the logits after the first four steps. If these steps change nothing, returns the same
// span. If they only remove the tokens that a constraint forbids, which can be nearly all tokens,
// returns the logits of the others without gaps, and sets only_.
absl::Span<const float> Sampler::Adjust(absl::Span<const float> logits, const SampleInput& input) {
  const SamplerState& state = *input.state;
  const bool filtered = !input.forbidden.empty() || state.filter.has_value();
  const bool penalties = state.counts.has_value() || state.dry.has_value();
  only_ = nullptr;
  row_size_ = logits.size();
  if (input.params->logit_bias.empty() && !filtered && !penalties) {
    if (input.allowed == nullptr) return logits;
    if (!input.processed_logprobs) {
      only_ = input.allowed;
      return Gather(*only_, logits, &adjusted_);
    }
  }
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : input.params->logit_bias) {
    if (static_cast<size_t>(id) < adjusted_.size()) SetFinite(adjusted_[id] + bias, &adjusted_[id]);
  }
  for (const int32_t id : input.forbidden) {
    if (static_cast<size_t>(id) < adjusted_.size()) adjusted_[id] = -kInfinity;
  }
  if (state.filter.has_value()) {
    state.filter->Apply(input.tokens.last(input.position), absl::MakeSpan(adjusted_));
  }
  if (input.allowed != nullptr) KeepOnly(*input.allowed, absl::MakeSpan(adjusted_));
  if (state.counts.has_value()) AddPenalties(input);
  if (state.dry.has_value()) {
    dry_.Apply(*input.params, *state.dry, input.tokens, absl::MakeSpan(adjusted_));
  }
  return adjusted_;
}

void Sampler::AddPenalties(const SampleInput& input) {
  const SamplingParams& params = *input.params;
  for (const auto& [id, count] : input.state->counts->outputs()) {
    if (static_cast<size_t>(id) >= adjusted_.size()) continue;
    float* logit = &adjusted_[id];
    SetFinite(*logit > 0 ? *logit / params.repetition_penalty : *logit * params.repetition_penalty,
              logit);
    if (count == 0) continue;
    SetFinite(
        *logit - params.frequency_penalty * static_cast<float>(count) - params.presence_penalty,
        logit);
  }
}

// Sorts candidates_ from index `first` on, in the order of Better. Uses a radix sort. If the
// distribution is flat, tens of thousands of candidates must be sorted, and sorting by comparisons
// would take longer than computing the logits.
void Sampler::SortFrom(size_t first) {
  constexpr int kBits = 11;
  constexpr uint32_t kBuckets = 1 << kBits;
  // Maps floats to integers such that the largest float becomes the smallest integer. Adding zero
  // turns -0 into 0.
  const auto key = [](const Candidate& candidate) {
    const uint32_t bits = std::bit_cast<uint32_t>(candidate.value + 0.0f);
    return ~(bits ^ (bits >> 31 != 0 ? 0xffffffff : 0x80000000));
  };
  sorted_.resize(candidates_.size());
  for (int shift = 0; shift < 32; shift += kBits) {
    size_t ends[kBuckets + 1] = {};
    for (size_t i = first; i < candidates_.size(); ++i) {
      ++ends[(key(candidates_[i]) >> shift & (kBuckets - 1)) + 1];
    }
    for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) ends[bucket + 1] += ends[bucket];
    for (size_t i = first; i < candidates_.size(); ++i) {
      const uint32_t bucket = key(candidates_[i]) >> shift & (kBuckets - 1);
      sorted_[first + ends[bucket]++] = candidates_[i];
    }
    std::copy(sorted_.begin() + first, sorted_.end(), candidates_.begin() + first);
  }
  for (auto begin = candidates_.begin() + first; begin != candidates_.end();) {
    const float value = begin->value;
    auto end = begin + 1;
    while (end != candidates_.end() && end->value == value) ++end;
    // Ids with equal values are usually ascending, because the sort is stable and ids were
    // ascending before.
    if (!std::is_sorted(begin, end, Better)) std::sort(begin, end, Better);
    begin = end;
  }
}

// Sets candidates_ to the `count` largest logits, in order.
void Sampler::SelectTop(absl::Span<const float> logits, size_t count) {
  candidates_.clear();
  count = std::min(count, logits.size());
  if (count == 0) return;
  if (count > kHeapCandidates) {
    for (size_t i = 0; i < logits.size(); ++i) {
      candidates_.push_back({logits[i], static_cast<int32_t>(i)});
    }
    SortFrom(0);
    candidates_.resize(count);
    return;
  }
  for (size_t i = 0; i < count; ++i) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
  // In the heap, the worst candidate is in front, so that for most logits one comparison is enough.
  // Ids are visited in ascending order, so among equal logits the lower ids are kept.
  std::make_heap(candidates_.begin(), candidates_.end(), Better);
  float worst = candidates_.front().value;
  for (size_t i = count; i < logits.size(); ++i) {
    if (logits[i] <= worst) continue;
    std::pop_heap(candidates_.begin(), candidates_.end(), Better);
    candidates_.back() = {logits[i], static_cast<int32_t>(i)};
    std::push_heap(candidates_.begin(), candidates_.end(), Better);
    worst = candidates_.front().value;
  }
  std::sort_heap(candidates_.begin(), candidates_.end(), Better);
}

// Keeps the smallest number of best candidates whose weights together reach the share `top_p` of
// `total`, the weight of all candidates. Those with less weight than Negligible may be missing.
void Sampler::KeepTopP(double top_p, double total) {
  double mass = 0;
  const auto reached = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      mass += candidates_[i].value;
      if (mass < top_p * total) continue;
      candidates_.resize(i + 1);
      return true;
    }
    return false;
  };
  // Usually a few candidates have this mass. If not, all candidates are sorted at once.
  size_t few = 0;
  if (candidates_.size() > kFewCandidates) {
    few = kFewCandidates;
    std::partial_sort(candidates_.begin(), candidates_.begin() + few, candidates_.end(), Better);
    if (reached(0, few)) return;
  }
  SortFrom(few);
  reached(few, candidates_.size());
}

// Applies the steps from top_n_sigma to top_p to candidates_. Requires: the candidates have
// weights. top_n_sigma is here and not before the temperature, because it removes logits below a
// limit, as min_p and top_k do. The order of these three steps changes nothing.
void Sampler::Truncate(absl::Span<const float> logits, float best, const SampleInput& input) {
  const SamplingParams& params = *input.params;
  if (params.top_n_sigma > 0) KeepTopNSigma(logits, best, params.top_n_sigma, &candidates_);
  if (params.typical_p < 1) {
    KeepTypical({.logits = logits, .best = best, .temperature = params.temperature},
                params.typical_p, &candidates_, &weights_);
  }
  if (params.top_p >= 1) return;
  const double total = TotalWeight(candidates_);
  const double negligible = Negligible(params.top_p, total, candidates_.size());
  std::erase_if(candidates_, [negligible](const Candidate& c) { return c.value < negligible; });
  KeepTopP(params.top_p, total);
}

int32_t Sampler::Draw(absl::Span<const float> logits, float best, const SampleInput& input) {
  const SamplingParams& params = *input.params;
  const double random = Uniform(input, Purpose::kDraw);
  if (!NeedsCandidates(input)) {
    const absl::Span<const float> weights =
        ComputeWeights(logits, best, params.temperature, &weights_);
    return static_cast<int32_t>(DrawIndex(weights, random, &sums_));
  }
  FindCandidates(logits, best, input);
  const double total = TotalWeight(candidates_);
  const double target = random * total;
  double mass = 0;
  for (const Candidate& candidate : candidates_) {
    mass += candidate.value;
    if (mass > target) return candidate.id;
  }
  return candidates_.back().id;  // the last sum equals `total`, and `target` is less than it
}

// Sets candidates_ to the tokens that may be drawn, with their weights.
void Sampler::FindCandidates(absl::Span<const float> logits, float best, const SampleInput& input) {
  const SamplingParams& params = *input.params;
  const bool top_k = params.top_k > 0 && static_cast<size_t>(params.top_k) < row_size_;
  if (top_k) {
    SelectTop(logits, params.top_k);
    top_logits_.clear();
    for (const Candidate& candidate : candidates_) top_logits_.push_back(candidate.value);
  }
  const absl::Span<const float> weights =
      ComputeWeights(top_k ? top_logits_ : logits, best, params.temperature, &weights_);
  if (!top_k && HasOnlyTopP(params)) {
    // Few of the tokens become candidates.
    const double total = SumWeights(weights);
    const double negligible = Negligible(params.top_p, total, weights.size());
    candidates_.clear();
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] < negligible) continue;
      candidates_.push_back({weights[i], static_cast<int32_t>(i)});
    }
    KeepTopP(params.top_p, total);
  } else {
    size_t kept = 0;
    candidates_.resize(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      const int32_t id = top_k ? candidates_[i].id : static_cast<int32_t>(i);
      candidates_[kept] = {weights[i], id};
      kept += weights[i] > 0 && weights[i] >= params.min_p;
    }
    candidates_.resize(kept);
    Truncate(logits, best, input);
  }
  if (params.xtc_probability > 0 && Uniform(input, Purpose::kXtc) < params.xtc_probability) {
    ExcludeTopChoices(params.xtc_threshold, &candidates_);
  }
}

TokenLogprob Sampler::Logprob(absl::Span<const float> logits, int32_t token, int32_t top) {
  const float best = *std::max_element(logits.begin(), logits.end());
  const double log_total = best + Log(SumWeights(ComputeWeights(logits, best, 1, &weights_)));
  TokenLogprob result;
  result.token_id = token;
  result.logprob = static_cast<float>(logits[token] - log_total);
  SelectTop(logits, top);
  for (const Candidate& candidate : candidates_) {
    if (candidate.value == -kInfinity) break;  // excluded tokens
    result.top.emplace_back(candidate.id, static_cast<float>(candidate.value - log_total));
  }
  return result;
}

TokenLogprob Sampler::DrawnLogprob(int32_t token, int32_t top) {
  const double total = TotalWeight(candidates_);
  const double log_total = Log(total);
  const auto logprob = [log_total](const Candidate& candidate) {
    return static_cast<float>(Log(candidate.value) - log_total);
  };
  const auto own = std::find_if(candidates_.begin(), candidates_.end(),
                                [token](const Candidate& c) { return c.id == token; });
  TokenLogprob result{.token_id = token, .logprob = logprob(*own)};
  const size_t count = std::min<size_t>(top, candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + count, candidates_.end(), Better);
  for (size_t i = 0; i < count; ++i) {
    result.top.emplace_back(candidates_[i].id, logprob(candidates_[i]));
  }
  return result;
}

}  // namespace tidepool::engine
