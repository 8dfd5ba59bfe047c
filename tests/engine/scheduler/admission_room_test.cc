#include "engine/scheduler/admission_room.h"

#include <memory>
#include <optional>
#include <vector>

#include "tests/engine/scheduler/scheduler_fixture.h"

namespace tidepool::engine {
namespace {

// There are ten blocks, and three sequences may run.
class AdmissionRoomTest : public SchedulerTest {
 protected:
  void SetUp() override { Start(10); }

  std::unique_ptr<Sequence> Make(const Job& job) {
    std::unique_ptr<Sequence> sequence = MakeSequence(job);
    sequence->lease = cache_->NewLease("");
    return sequence;
  }
  // Adds a running sequence that holds the blocks of its first `slots` slots.
  Sequence* Run(const Job& job, int64_t slots) {
    std::unique_ptr<Sequence> sequence = Make(job);
    Sequence* const added = sequence.get();
    if (slots > 0) sequence->lease.Reserve(slots)->Keep();
    running_.Insert(std::move(sequence), 1);
    return added;
  }
  AdmissionRoom Room() const {
    return AdmissionRoom(
        {.max_sequences = 3, .prefill_chunk = 40, .cache = cache_.get(), .running = &running_});
  }

  RunningSequences running_{
      {.limits = {.rows = 64, .logit_rows = 8}, .prefill_chunk = 40, .max_sequences = 3},
      decoder_.get()};
};

TEST_F(AdmissionRoomTest, RunningSequencesKeepAPlaceAndTheirBlocks) {
  EXPECT_TRUE(Room().HasPlace());
  EXPECT_EQ(Room().BlocksSpokenFor(), 0);
  Run({.prompt = 4 * kTokens}, kTokens);  // needs three more blocks, and one for the next token
  EXPECT_EQ(Room().BlocksSpokenFor(), 4);
  Run({.prompt = kTokens}, kTokens);
  EXPECT_EQ(Room().BlocksSpokenFor(), 5);
  Run({.prompt = 1}, 1);
  EXPECT_FALSE(Room().HasPlace());
}

TEST_F(AdmissionRoomTest, LowerPrioritiesMakeRoomForHigherOnes) {
  for (int i = 0; i < 3; ++i) Run({.prompt = 3 * kTokens, .priority = i}, 3 * kTokens);
  // One block is free. Two running sequences, of three blocks each, can be preempted for priority
  // 2. The third one needs one more block.
  EXPECT_TRUE(Room().FitsInPlaceOfLower(*Make({.prompt = 6 * kTokens, .priority = 2})));
  EXPECT_FALSE(Room().FitsInPlaceOfLower(*Make({.prompt = 7 * kTokens, .priority = 2})));
  EXPECT_TRUE(Room().FitsInPlaceOfLower(*Make({.prompt = 10 * kTokens, .priority = 3})));
  EXPECT_FALSE(Room().FitsInPlaceOfLower(*Make({.prompt = 1, .priority = 0})));
}

TEST_F(AdmissionRoomTest, CountsTheVictimsThatAreNeeded) {
  std::vector<Sequence*> victims;
  for (int i = 0; i < 3; ++i) victims.push_back(Run({.prompt = 3 * kTokens}, 3 * kTokens));
  // One block is free, and each running sequence needs one more. Preempting the first one frees
  // four blocks.
  EXPECT_EQ(Room().VictimsNeeded(*Make({.prompt = 2 * kTokens}), victims), 1);
  EXPECT_EQ(Room().VictimsNeeded(*Make({.prompt = 3 * kTokens}), victims), 2);
  EXPECT_EQ(Room().VictimsNeeded(*Make({.prompt = 10 * kTokens}), victims), 3);
  EXPECT_EQ(Room().VictimsNeeded(*Make({.prompt = 11 * kTokens}), victims), std::nullopt);
  EXPECT_EQ(Room().VictimsNeeded(*Make({.prompt = 1}), {}), std::nullopt);
}

}  // namespace
}  // namespace tidepool::engine
