// Prompts that kill workers after they were prepared, and trials beside streams that nobody reads.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/service/front/simulated_workers.h"

namespace tidepool::service {
namespace {

class BlameBesideTest : public SimulatedWorkersTest {
 protected:
  static constexpr int kPoison = 50;

  // All ask for it at once, again and again, until all are refused.
  void AskUntilRefused(const std::vector<std::string>& senders) {
    for (size_t refused = 0, round = 0; refused < senders.size(); ++round) {
      ASSERT_LT(round, 10);
      refused = 0;
      std::vector<Client*> clients;
      for (const std::string& sender : senders) clients.push_back(Ask(kPoison, sender));
      Pass(absl::Seconds(20));
      for (Client* client : clients) {
        if (!client->status.has_value()) {
          client->generation->Cancel(absl::CancelledError("enough"));
        } else if (client->status->code() == absl::StatusCode::kInternal) {
          ++refused;
        }
      }
    }
  }
};

TEST_F(BlameBesideTest, APromptThatKillsAfterItsPrepareKillsThreeWorkers) {
  dies_prepared_ = kPoison;
  AskUntilRefused({"mallory"});
  EXPECT_EQ(kills_, 3);
}

TEST_F(BlameBesideTest, APromptThatKillsAfterItsPrepareKillsTheOnlyWorkerThreeTimes) {
  for (PuppetLink* worker : {workers_[1], workers_[2]}) {
    Cut(worker);
    dead_until_[worker] = absl::InfiniteDuration();
  }
  Pass(absl::Minutes(2));
  dies_prepared_ = kPoison;
  AskUntilRefused({"mallory"});
  EXPECT_EQ(kills_, 3);
}

TEST_F(BlameBesideTest, TwoSendersOfAPromptThatKillsAfterItsPrepareKillThreeWorkers) {
  dies_prepared_ = kPoison;
  AskUntilRefused({"mallory", "bob"});
  EXPECT_EQ(kills_, 3);
}

TEST_F(BlameBesideTest, StreamsBesideAPromptThatKillsAfterItsPrepareGoOn) {
  for (int prompt = 1; prompt <= 9; ++prompt) Ask(prompt);
  Pass(absl::Seconds(4));
  dies_prepared_ = kPoison;
  AskUntilRefused({"mallory"});
  EXPECT_EQ(kills_, 3);
  while (clients_.back().status.has_value()) clients_.pop_back();
  ExpectAllGoOn();
}

// As with a client that reads slowly: its stream begins at the trial's worker with nothing to
// compute, and gets something to compute before the trial crashes.
TEST_F(BlameBesideTest, AStreamThatIsReadAgainDuringATrialDoesNotSpoilIt) {
  for (int prompt = 1; prompt <= 6; ++prompt) deaf_.insert(Ask(prompt));
  Pass(absl::Seconds(80));
  for (PuppetLink* worker : workers_) Kill(worker);
  Pass(absl::Minutes(3));
  kills_ = 0;
  poison_ = {{kPoison, 4}};
  const Client* poisoned = Ask(kPoison, "mallory");
  for (int tick = 0; tick < 400 && kills_ < 2; ++tick) Tick();
  ASSERT_EQ(kills_, 2);
  poison_ = {{kPoison, 8}};  // so that the trial lasts
  Pass(absl::Seconds(1));
  for (int tick = 0; tick < 400 && Where(kPoison) == nullptr; ++tick) Tick();
  ASSERT_NE(Where(kPoison), nullptr);
  deaf_.clear();
  Pass(absl::Minutes(1));
  EXPECT_EQ(kills_, 3);
  ASSERT_TRUE(poisoned->status.has_value());
  EXPECT_EQ(poisoned->status->code(), absl::StatusCode::kInternal);
  clients_.pop_back();
  ExpectAllGoOn();
}

}  // namespace
}  // namespace tidepool::service
