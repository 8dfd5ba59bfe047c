#include "engine/evaluation/throughput.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "engine/model/batch.h"
#include "engine/model/contiguous_kv.h"
#include "engine/model/workspace.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/offload_stats.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kWarmUpPasses = 8;

// A hash of `x`. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014 (SplitMix64).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Thread-compatible. The KV and the workspace of one test, and the bytes that its passes read.
class Runner {
 public:
  static absl::StatusOr<Runner> Create(Model* model, const ThroughputTest& test,
                                       const ThroughputOptions& options) {
    const int64_t rows =
        test.phase == moe::Phase::kPrefill ? std::min(test.tokens, options.chunk_rows) : 1;
    ASSIGN_OR_RETURN(ContiguousKv kv, ContiguousKv::Create(*model, test.sequences, test.tokens));
    ASSIGN_OR_RETURN(
        kernels::Arena workspace,
        MakeWorkspace(*model, {.rows = rows * test.sequences, .logit_rows = test.sequences}));
    return Runner(model, test, options.cost, rows, {std::move(kv), std::move(workspace)});
  }

  absl::Status WarmUp() {
    return Run(0, test_.phase == moe::Phase::kPrefill ? rows_ : kWarmUpPasses);
  }

  // Computes the first `tokens` tokens of every sequence, in repetition number `run`.
  absl::Status Run(int run, int64_t tokens) {
    tokens = std::min(tokens, test_.tokens);
    run_ = run;
    bytes_ = 0;
    experts_ = {};
    for (int64_t first = 0; first < tokens; first += rows_) {
      RETURN_IF_ERROR(Pass(first, std::min(rows_, tokens - first)));
    }
    return absl::OkStatus();
  }

  // Number of bytes that the last Run has read.
  double bytes() const { return bytes_; }
  ExpertCounts experts() const { return experts_; }

 private:
  struct Parts {
    ContiguousKv kv;
    kernels::Arena workspace;
  };
  Runner(Model* model, const ThroughputTest& test, const ReadCost& cost, int64_t rows, Parts parts)
      : model_(model),
        test_(test),
        cost_(cost),
        rows_(rows),
        kv_bytes_per_token_(ContiguousKv::BlockBytes(model->kv_specs()) /
                            static_cast<double>(kernels::kKvBlockTokens)),
        state_bytes_(static_cast<double>(ContiguousKv::StateBytes(model->kv_specs()))),
        kv_(std::move(parts.kv)),
        workspace_(std::move(parts.workspace)) {}

  absl::Status Pass(int64_t first, int64_t rows) {
    Batch batch;
    const bool wants_logits = test_.phase == moe::Phase::kDecode || first + rows == test_.tokens;
    for (int s = 0; s < test_.sequences; ++s) {
      RowSpan& span = batch.spans.emplace_back();
      span.first_slot = first;
      span.request = s;
      span.phase = test_.phase;
      for (int64_t i = first; i < first + rows; ++i) span.token_ids.push_back(TokenAt(s, i));
      if (wants_logits) span.logit_rows = {static_cast<int32_t>(rows - 1)};
      kv_.SetBlocks(s, &span);
    }
    RETURN_IF_ERROR(model_->Forward(batch, kv_.view(), &workspace_).status());
    for (int s = 0; s < test_.sequences; ++s) kv_.Commit(s);
    const ExpertCounts counts = model_->last_expert_counts();
    experts_.hits += counts.hits;
    experts_.misses += counts.misses;
    const double kv_tokens = static_cast<double>(test_.sequences * (first + rows));
    bytes_ += static_cast<double>(cost_.dense + cost_.per_expert * (counts.hits + counts.misses) +
                                  cost_.per_row * test_.sequences * rows) +
              kv_tokens * kv_bytes_per_token_ + test_.sequences * state_bytes_;
    return absl::OkStatus();
  }

  // Returns a pseudo-random token, which is different for each run, sequence and position. If
  // tokens were repeated, they would choose the same experts.
  int32_t TokenAt(int sequence, int64_t position) const {
    const uint64_t place = uint64_t{static_cast<uint32_t>(run_)} << 48 |
                           uint64_t{static_cast<uint32_t>(sequence)} << 32 |
                           static_cast<uint32_t>(position);
    return static_cast<int32_t>(Mix(place) % static_cast<uint64_t>(model_->vocab_size()));
  }

  Model* const model_;
  const ThroughputTest test_;
  const ReadCost cost_;
  const int64_t rows_;  // rows of one sequence in one pass
  const double kv_bytes_per_token_;
  const double state_bytes_;  // of one sequence's recurrent state
  ContiguousKv kv_;
  kernels::Arena workspace_;
  int run_ = 0;
  double bytes_ = 0;
  ExpertCounts experts_;
};

}  // namespace

int64_t KvBytes(const std::vector<KvSpec>& specs, const ThroughputTest& test) {
  const int64_t blocks = (test.tokens + kernels::kKvBlockTokens - 1) / kernels::kKvBlockTokens;
  const auto block_bytes = static_cast<int64_t>(ContiguousKv::BlockBytes(specs));
  // A pass reads one state and writes another.
  const auto state_bytes = static_cast<int64_t>(ContiguousKv::StateBytes(specs));
  return test.sequences * (blocks * block_bytes + 2 * state_bytes);
}

absl::StatusOr<Throughput> MeasureThroughput(Model* model, const ThroughputTest& test,
                                             const ThroughputOptions& options) {
  CHECK(test.tokens > 0 && test.sequences > 0 && options.repetitions > 0 && options.chunk_rows > 0);
  ASSIGN_OR_RETURN(Runner runner, Runner::Create(model, test, options));
  RETURN_IF_ERROR(runner.WarmUp());
  Throughput result;
  result.tokens = test.tokens * test.sequences;
  const moe::OffloadStats before = model->offload_stats().value_or(moe::OffloadStats());
  for (int i = 0; i < options.repetitions; ++i) {
    if (options.progress) options.progress(i);
    const absl::Duration start = options.clock->Monotonic();
    RETURN_IF_ERROR(runner.Run(i + 1, test.tokens));
    result.seconds.push_back(absl::ToDoubleSeconds(options.clock->Monotonic() - start));
  }
  result.bytes = runner.bytes();
  result.experts = runner.experts();
  const std::optional<moe::OffloadStats> after = model->offload_stats();
  if (after.has_value()) result.offload = moe::Difference(*after, before);
  return result;
}

}  // namespace tidepool::engine
