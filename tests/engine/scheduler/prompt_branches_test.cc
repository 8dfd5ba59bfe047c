// Where a scheduler asks for checkpoints of recurrent states.
#include "engine/scheduler/prompt_branches.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/scheduler/scheduler_fixture.h"

namespace tidepool::engine {
namespace {

class PromptBranchesTest : public SchedulerTest {
 protected:
  // A model with a recurrent state of two blocks. All blocks have KV of an earlier sequence, so
  // that there is no memory for spare checkpoints.
  void StartHybrid(int64_t blocks) {
    const SchedulerOptions options = {
        .limits = {.rows = 512, .logit_rows = 8}, .prefill_chunk = 256, .max_sequences = 8};
    Start(1, options);
    scheduler_.reset();
    const KvSpec full = {.kv_heads = 1, .k_dim = 2, .v_dim = 2, .dtype = kernels::DType::kF32};
    const KvSpec state = {.kind = KvKind::kState, .state = {{.units = 2, .unit_bytes = 512}}};
    cache_ =
        KvCache::Create({full, state}, {.memory_bytes = static_cast<size_t>(blocks) * 512}).value();
    ASSERT_EQ(cache_->block_bytes(), 512u);
    KvLease earlier = cache_->NewLease("earlier");
    const std::vector<int32_t> tokens((blocks - 2) * kTokens, 1);
    earlier.Reserve(static_cast<int64_t>(tokens.size()))->Keep();
    earlier.Commit(tokens);
    earlier.Reset();
    ASSERT_EQ(cache_->blocks_cached(), blocks);
    scheduler_ = std::make_unique<BatchScheduler>(options, cache_.get(), decoder_.get());
  }

  // Returns the boundaries at which the current plan takes snapshots of its first sequence.
  std::vector<int64_t> Snapshots() const {
    const RowSpan& span = plan_->batch.spans.front();
    std::vector<int64_t> boundaries;
    for (const kernels::StateSnapshot& snapshot : span.state_snapshots) {
      EXPECT_EQ((span.first_slot + snapshot.rows) % kTokens, 0);
      boundaries.push_back((span.first_slot + snapshot.rows) / kTokens);
    }
    return boundaries;
  }

  static std::vector<int32_t> Shared(int64_t count) {
    std::vector<int32_t> tokens(count);
    for (int64_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(100 + i % 90);
    return tokens;
  }
};

TEST_F(PromptBranchesTest, CheckpointsAreWhereWaitingPromptsDiffer) {
  StartHybrid(200);
  Add({.name = "A", .prompt = 100, .shared = Shared(300)});
  Add({.name = "B", .prompt = 90, .shared = Shared(100)});
  Add({.name = "C", .prompt = 90, .shared = Shared(200)});
  Add({.name = "D", .prompt = 10, .shared = Shared(300)});
  Add({.name = "E", .prompt = 500});
  // B, C and D wait for A. The pass ends at a boundary.
  EXPECT_EQ(Plan(), "A 0+256, E 0+256");
  EXPECT_EQ(Snapshots(), (std::vector<int64_t>{3, 6}));
  EXPECT_TRUE(plan_->batch.spans[1].state_snapshots.empty());
  Commit();
  // D continues like A until block 9. A's prompt has its checkpoint after block 12.
  EXPECT_EQ(Plan(), "A 256+144*, B 96+94*, C 192+98*, E 256+176");
  EXPECT_EQ(Snapshots(), (std::vector<int64_t>{9, 12}));
  Commit();
  EXPECT_EQ(sequences_["D"]->lease.slots(), 0);
  Plan();
  EXPECT_EQ(sequences_["D"]->lease.slots(), 288);
}

TEST_F(PromptBranchesTest, ThereAreAtMostFourAtOnce) {
  StartHybrid(200);
  Add({.name = "A", .prompt = 1, .shared = Shared(256)});
  for (int i = 1; i <= 6; ++i) {
    Add({.name = absl::StrCat("B", i), .prompt = 90, .shared = Shared(33 * i)});
  }
  Add({.name = "C", .prompt = 90, .shared = Shared(33)});
  EXPECT_EQ(Plan(), "A 0+256");
  // Two prompts differ after the first block.
  EXPECT_EQ(Snapshots(), (std::vector<int64_t>{1, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace tidepool::engine
