// Admission alone, without plans and steps.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "engine/scheduler/admission.h"
#include "tests/engine/scheduler/scheduler_fixture.h"

namespace tidepool::engine {
namespace {

// A step has 64 rows, a chunk has 40, and two sequences may run.
class AdmissionOutcomesTest : public SchedulerTest {
 protected:
  void SetUp() override { Start(10); }
  void TearDown() override {
    admission_.reset();
    running_.reset();
    waiting_ = AdmissionQueue();
    SchedulerTest::TearDown();
  }

  void StartParts() {
    const SchedulerOptions options = {
        .limits = {.rows = 64, .logit_rows = 8}, .prefill_chunk = 40, .max_sequences = 2};
    running_ = std::make_unique<RunningSequences>(options, decoder_.get());
    admission_ = std::make_unique<Admission>(Admission::Parts{.options = options,
                                                              .cache = cache_.get(),
                                                              .decoder = decoder_.get(),
                                                              .running = running_.get(),
                                                              .waiting = &waiting_});
  }
  void Wait(const Job& job) {
    std::unique_ptr<Sequence> sequence = MakeSequence(job);
    sequence->lease = cache_->NewLease("");
    sequence->has_credit = true;
    waiting_.Add(std::move(sequence));
  }
  // Makes a plan. Returns the sequences that run after it, in order.
  std::string Run() {
    running_->BeginStep();
    admission_->Run({});
    std::vector<std::string> names;
    for (const auto& sequence : running_->sequences()) names.push_back(names_[sequence->arrival]);
    return absl::StrJoin(names, " ");
  }

  AdmissionQueue waiting_;
  std::unique_ptr<RunningSequences> running_;
  std::unique_ptr<Admission> admission_;
};

TEST_F(AdmissionOutcomesTest, AdmitsInOrderWhilePlacesLast) {
  StartParts();
  for (const char* name : {"A", "B", "C"}) Wait({.name = name, .prompt = 3});
  EXPECT_EQ(Run(), "A B");
  EXPECT_EQ(admission_->admissions(), 2);
  EXPECT_TRUE(sequences_["A"]->admitted);
  EXPECT_EQ(sequences_["A"]->admission.left_to_compute, 3);
  EXPECT_FALSE(sequences_["C"]->admitted);
  EXPECT_EQ(waiting_.size(), 1);
}

TEST_F(AdmissionOutcomesTest, TheFirstWithoutBlocksHoldsUpTheOthers) {
  StartParts();
  Wait({.name = "A", .prompt = 5 * kTokens});
  Wait({.name = "large", .prompt = 8 * kTokens});
  Wait({.name = "small", .prompt = 1});
  EXPECT_EQ(Run(), "A");
}

TEST_F(AdmissionOutcomesTest, AHigherPriorityPreemptsLowerOnes) {
  StartParts();
  Wait({.name = "A", .prompt = 3});
  Wait({.name = "B", .prompt = 3});
  EXPECT_EQ(Run(), "A B");
  Wait({.name = "urgent", .prompt = 3, .priority = 1});
  EXPECT_EQ(Run(), "urgent A");
  EXPECT_EQ(admission_->preemptions(), 1);
  EXPECT_FALSE(sequences_["B"]->admitted);
}

TEST_F(AdmissionOutcomesTest, AStalledSequenceGivesUpItsPlace) {
  StartParts();
  Wait({.name = "A", .prompt = 3});
  Wait({.name = "B", .prompt = 3});
  EXPECT_EQ(Run(), "A B");
  sequences_["A"]->has_credit = false;
  Wait({.name = "C", .prompt = 3});
  EXPECT_EQ(Run(), "B C");
  EXPECT_FALSE(sequences_["A"]->admission.charged);  // A's client does not read
}

}  // namespace
}  // namespace tidepool::engine
