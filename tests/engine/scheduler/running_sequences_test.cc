#include "engine/scheduler/running_sequences.h"

#include <memory>
#include <string>

#include "tests/engine/scheduler/scheduler_fixture.h"

namespace tidepool::engine {
namespace {

// A step has 64 rows, and a chunk has 40.
class RunningSequencesTest : public SchedulerTest {
 protected:
  void SetUp() override { Start(100); }

  Sequence* Run(const Job& job, bool has_credit = true) {
    std::unique_ptr<Sequence> sequence = MakeSequence(job);
    sequence->lease = cache_->NewLease("");
    sequence->has_credit = has_credit;
    Sequence* const added = sequence.get();
    const int64_t left = decoder_->PendingRows(*sequence);
    running_.Insert(std::move(sequence), left);
    return added;
  }
  // Adds a sequence that decodes: all its tokens except the last one are computed.
  Sequence* Decode(const Job& job) {
    Sequence* const sequence = Run(job);
    const int64_t slots = static_cast<int64_t>(sequence->tokens.size()) - 1;
    sequence->lease.Reserve(slots)->Keep();
    sequence->lease.Commit(absl::MakeConstSpan(sequence->tokens).first(slots));
    return sequence;
  }
  int64_t RowsOf(const Sequence* sequence) {
    const auto rows = running_.SharePromptRows();
    const auto found = rows.find(sequence->arrival);
    return found == rows.end() ? 1 : found->second;
  }

  RunningSequences running_{
      {.limits = {.rows = 64, .logit_rows = 8}, .prefill_chunk = 40, .max_sequences = 4},
      decoder_.get()};
};

TEST_F(RunningSequencesTest, PromptsShareTheRowsThatDecodesLeave) {
  const Sequence* decode = Decode({.prompt = 9});
  const Sequence* first = Run({.prompt = 100});
  const Sequence* second = Run({.prompt = 101});
  running_.BeginStep();
  EXPECT_EQ(RowsOf(decode), 1);
  EXPECT_EQ(RowsOf(first), 40);
  EXPECT_EQ(RowsOf(second), 23);
  EXPECT_EQ(running_.PendingPromptRows(), 201);
}

TEST_F(RunningSequencesTest, LimitsBoundTheStep) {
  Decode({.prompt = 9});
  const Sequence* prompt = Run({.prompt = 100});
  running_.SetLimits({.prefill_chunk = 40, .mixed_rows = 20});
  running_.BeginStep();
  EXPECT_EQ(RowsOf(prompt), 20);
  running_.SetLimits({.prefill_chunk = 10, .mixed_rows = 20});
  running_.BeginStep();
  EXPECT_EQ(RowsOf(prompt), 9);  // the decode gets one of the ten rows
}

TEST_F(RunningSequencesTest, TheRowsOfATakenSequenceGoToOthers) {
  Sequence* decode = Decode({.prompt = 9});
  const Sequence* prompt = Run({.prompt = 100});
  running_.SetLimits({.prefill_chunk = 10, .mixed_rows = 64});
  running_.BeginStep();
  EXPECT_EQ(RowsOf(prompt), 9);
  running_.Take(decode);
  EXPECT_EQ(RowsOf(prompt), 10);
  EXPECT_EQ(running_.size(), 1);
}

TEST_F(RunningSequencesTest, FindsTheLastThatMayGiveWay) {
  EXPECT_EQ(running_.LastStalled(), nullptr);
  Sequence* const urgent = Run({.prompt = 9, .priority = 2});
  Sequence* const stalled = Run({.prompt = 9, .priority = 1}, /*has_credit=*/false);
  Sequence* const prompt = Run({.prompt = 9});
  Sequence* const decode = Decode({.prompt = 9});
  EXPECT_EQ(running_.LastStalled(), stalled);
  EXPECT_EQ(running_.last(), decode);
  EXPECT_EQ(running_.LastPrefillBelow(1), prompt);
  EXPECT_EQ(running_.LastPrefillBelow(0), nullptr);
  EXPECT_TRUE(running_.ComputesPrompt(*urgent));
  EXPECT_FALSE(running_.ComputesPrompt(*stalled));
  EXPECT_FALSE(running_.ComputesPrompt(*decode));
}

}  // namespace
}  // namespace tidepool::engine
