// Streams that wait while a prompt is tried alone (crash_evidence.h). A front has three workers of
// a slow model (one token each 250 ms).
#include <gtest/gtest.h>

#include "tests/service/front/simulated_workers.h"

namespace tidepool::service {
namespace {

class TrialQueueTest : public SimulatedWorkersTest {
 protected:
  // Prompt 50 is tried alone and gets no tokens. Returns the worker of the trial.
  PuppetLink* BeginLongTrial() {
    poison_ = {{50, 0}};
    Ask(50);
    while (kills_ < 2) Tick();
    poison_.clear();
    silent_ = 50;
    while (Where(50) == nullptr) Tick();
    Pass(absl::Seconds(10));
    return Where(50);
  }
  void KillAllBut(const PuppetLink* spared) {
    for (PuppetLink* worker : workers_) {
      if (worker != spared) Kill(worker);
    }
  }
};

// Carol's stream may only run on the worker of Alice's stream, which computes the same prompt.
// There it waits for the trial of another prompt, which waits until Alice's stream gets tokens.
TEST_F(TrialQueueTest, ASuspectThatWaitsForATrialDoesNotHoldUpOtherSuspects) {
  Kill(workers_[2]);  // excuses the crash of a trial, so the trial does not wait for calm
  Pass(absl::Seconds(4));
  silent_ = 1;
  Ask(50);
  Ask(1, "alice");
  const Client* bob = Ask(1, "bob");
  Tick();
  ASSERT_NE(Where(50), nullptr);
  Kill(Where(50));
  while (Where(50) == nullptr) Tick();
  // Bob's stream runs on the worker of the trial, and Alice's stream runs on the third worker.
  Kill(Where(50));
  bob->generation->Cancel(absl::CancelledError("enough"));
  Pass(absl::Seconds(2));
  EXPECT_EQ(Where(50), nullptr) << "the trial has begun";
  PuppetLink* const trial = Where(1);
  ASSERT_NE(trial, nullptr);
  Ask(1, "carol");
  Ask(7);
  Pass(absl::Seconds(1));
  ASSERT_NE(Where(7), nullptr);
  ASSERT_NE(Where(7), trial);
  Kill(Where(7));
  for (int tick = 0; tick < 2; ++tick) Tick();
  EXPECT_NE(Where(7), nullptr);
}

TEST_F(TrialQueueTest, StreamsThatWaitForATrialMoveToAWorkerThatComesBack) {
  for (int prompt = 1; prompt <= 6; ++prompt) Ask(prompt);
  Pass(absl::Seconds(4));
  PuppetLink* const trial = BeginLongTrial();
  KillAllBut(trial);
  Pass(absl::Seconds(8));  // each suspect needs two of these seconds
  EXPECT_EQ(Where(50), trial);
  for (int prompt = 1; prompt <= 6; ++prompt) EXPECT_NE(Where(prompt), nullptr) << prompt;
}

TEST_F(TrialQueueTest, SuspectsThatWaitForATrialStartOnAWorkerThatComesBack) {
  PuppetLink* const trial = BeginLongTrial();
  for (int prompt = 1; prompt <= 2; ++prompt) Ask(prompt);
  Tick();
  KillAllBut(trial);
  Pass(absl::Seconds(5));
  EXPECT_EQ(Where(50), trial);
  for (int prompt = 1; prompt <= 2; ++prompt) EXPECT_NE(Where(prompt), nullptr) << prompt;
}

}  // namespace
}  // namespace tidepool::service
