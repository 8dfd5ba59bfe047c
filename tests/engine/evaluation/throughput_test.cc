#include "engine/evaluation/throughput.h"

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scripted_model.h"

namespace tidepool::engine {
namespace {

// A model that records its calls. Its forward pass takes one second.
class TimedModel final : public Model {
 public:
  explicit TimedModel(fakes::ManualClock* clock) : clock_(clock) {}

  struct PassSeen {
    int64_t spans;
    int64_t rows;
    int64_t first_slot;
    int64_t logit_rows;
  };

  int vocab_size() const override { return model_.vocab_size(); }
  int hidden_size() const override { return model_.hidden_size(); }
  const std::vector<KvSpec>& kv_specs() const override { return model_.kv_specs(); }
  size_t WorkspaceBytes(const BatchLimits& limits) const override {
    return model_.WorkspaceBytes(limits);
  }
  absl::StatusOr<StepOutput> Forward(const Batch& batch, const KvView& kv,
                                     kernels::Arena* workspace) override {
    passes.push_back({static_cast<int64_t>(batch.spans.size()), batch.rows(),
                      batch.spans[0].first_slot, batch.logit_rows()});
    clock_->Advance(absl::Seconds(1));
    return model_.Forward(batch, kv, workspace);
  }
  void OnLayerEnd(std::function<void()> callback) override {
    model_.OnLayerEnd(std::move(callback));
  }
  ExpertCounts last_expert_counts() const override { return model_.last_expert_counts(); }

  fakes::ScriptedModel& script() { return model_; }
  std::vector<PassSeen> passes;

 private:
  fakes::ManualClock* const clock_;
  fakes::ScriptedModel model_;
};

class MeasureThroughputTest : public ::testing::Test {
 protected:
  // Returns the KV bytes of one token of the scripted model.
  double KvBytes() const {
    double bytes = 0;
    for (const KvSpec& spec : model_.kv_specs()) {
      bytes += spec.kv_heads * (spec.k_dim + spec.v_dim) * kernels::BlockBytes(spec.dtype);
    }
    return bytes;
  }

  fakes::ManualClock clock_;
  TimedModel model_{&clock_};
};

TEST_F(MeasureThroughputTest, APromptGoesThroughInChunks) {
  std::vector<int> seen;
  const auto result =
      MeasureThroughput(&model_, {.phase = moe::Phase::kPrefill, .tokens = 25},
                        {.repetitions = 2,
                         .chunk_rows = 10,
                         .cost = {.dense = 1000, .per_expert = 100, .per_row = 7},
                         .clock = &clock_,
                         .progress = [&](int repetition) { seen.push_back(repetition); }});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->tokens, 25);
  EXPECT_EQ(result->seconds, (std::vector<double>{3, 3}));
  EXPECT_EQ(seen, (std::vector<int>{0, 1}));
  // The scripted model computes 3 + 1 experts in each pass.
  EXPECT_EQ(result->experts.hits, 9);
  EXPECT_EQ(result->experts.misses, 3);
  EXPECT_EQ(result->bytes, 3 * (1000 + 4 * 100) + 25 * 7 + (10 + 20 + 25) * KvBytes());
  ASSERT_EQ(model_.passes.size(), 1u + 2 * 3);  // one warm-up pass
  const auto& last = model_.passes.back();
  EXPECT_EQ(last.first_slot, 20);
  EXPECT_EQ(last.rows, 5);
  EXPECT_EQ(last.logit_rows, 1);
  EXPECT_EQ(model_.passes[model_.passes.size() - 2].logit_rows, 0);
}

TEST_F(MeasureThroughputTest, SequencesDecodeTogether) {
  const auto result =
      MeasureThroughput(&model_, {.phase = moe::Phase::kDecode, .tokens = 4, .sequences = 3},
                        {.repetitions = 1, .cost = {.dense = 50}, .clock = &clock_});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->tokens, 12);
  EXPECT_EQ(result->seconds, (std::vector<double>{4}));
  EXPECT_EQ(result->bytes, 4 * 50 + 3 * (1 + 2 + 3 + 4) * KvBytes());
  for (const auto& pass : model_.passes) {
    EXPECT_EQ(pass.spans, 3);
    EXPECT_EQ(pass.rows, 3);
    EXPECT_EQ(pass.logit_rows, 3);
  }
}

TEST_F(MeasureThroughputTest, TheKvOfATestIsOfWholeBlocks) {
  const auto bytes = [&](int64_t tokens, int sequences) {
    return engine::KvBytes(model_.kv_specs(), {.tokens = tokens, .sequences = sequences});
  };
  EXPECT_GE(static_cast<double>(bytes(kernels::kKvBlockTokens, 1)),
            kernels::kKvBlockTokens * KvBytes());
  EXPECT_EQ(bytes(1, 1), bytes(kernels::kKvBlockTokens, 1));
  EXPECT_EQ(bytes(kernels::kKvBlockTokens + 1, 3), 6 * bytes(1, 1));
}

TEST_F(MeasureThroughputTest, AFailingPassIsReported) {
  model_.script().SetFailure(absl::InternalError("no expert"));
  const auto result = MeasureThroughput(&model_, {.tokens = 4}, {.clock = &clock_});
  EXPECT_EQ(result.status(), absl::InternalError("no expert"));
}

}  // namespace
}  // namespace tidepool::engine
