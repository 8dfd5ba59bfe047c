#include "tests/moe/replay/made_traces.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/base/check.h"

namespace tidepool::moe {
namespace {

// The gate of one layer. It changes over time.
class MadeGate {
 public:
  MadeGate(const MadeTraceOptions& options, uint32_t seed)
      : options_(options), random_(seed), order_(options.experts) {
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), random_);
    for (int rank = 0; rank < options.experts; ++rank) {
      mass_.push_back(std::pow(1 + rank, -options.skew) + (mass_.empty() ? 0 : mass_.back()));
    }
    rows_.resize(options.tokens);
    for (auto& row : rows_) row = Fresh();
  }

  std::vector<int32_t> Next(int forward, int tokens) {
    std::vector<int32_t> ids;
    for (int token = 0; token < tokens; ++token) {
      std::vector<int32_t> row = tokens > options_.tokens ? Fresh() : Drifted(token);
      if (options_.period > 0) {
        for (int k = 0; k < options_.top_k; ++k) {
          row[k] = order_[(forward % options_.period * options_.top_k + k) % options_.experts];
        }
      }
      ids.insert(ids.end(), row.begin(), row.end());
    }
    return ids;
  }

 private:
  double Uniform() { return std::uniform_real_distribution<double>()(random_); }

  int32_t Draw(const std::vector<int32_t>& taken) {
    while (true) {
      const auto rank = std::lower_bound(mass_.begin(), mass_.end(), Uniform() * mass_.back());
      const int32_t expert = order_[std::min<size_t>(rank - mass_.begin(), order_.size() - 1)];
      if (std::find(taken.begin(), taken.end(), expert) == taken.end()) return expert;
    }
  }

  std::vector<int32_t> Fresh() {
    std::vector<int32_t> row;
    while (static_cast<int>(row.size()) < options_.top_k) row.push_back(Draw(row));
    return row;
  }

  std::vector<int32_t> Drifted(int token) {
    for (int32_t& expert : rows_[token]) {
      if (Uniform() < options_.drift) expert = Draw(rows_[token]);
    }
    return rows_[token];
  }

  const MadeTraceOptions options_;
  std::mt19937 random_;
  std::vector<int32_t> order_;  // by popularity
  std::vector<double> mass_;
  std::vector<std::vector<int32_t>> rows_;  // experts by [tokens][top_k]
};

}  // namespace

Trace MakeTrace(const MadeTraceOptions& options) {
  Trace trace;
  trace.header = {.model = "made",
                  .layers = options.layers,
                  .experts = options.experts,
                  .top_k = options.top_k,
                  .expert_bytes = std::vector<int64_t>(options.layers, 1 << 20)};
  std::vector<MadeGate> gates;
  for (int layer = 0; layer < options.layers; ++layer) {
    gates.emplace_back(options, options.seed * 7919u + layer);
  }
  for (int forward = 0; forward < options.forwards; ++forward) {
    const bool prefill = options.prefill_every > 0 && forward % options.prefill_every == 0;
    for (int layer = 0; layer < options.layers; ++layer) {
      trace.entries.push_back(
          {.step = forward,
           .layer = layer,
           .ids = gates[layer].Next(forward, prefill ? options.prefill_tokens : options.tokens),
           .phases = {prefill ? Phase::kPrefill : Phase::kDecode},
           .requests = {0}});
    }
  }
  return trace;
}

}  // namespace tidepool::moe
