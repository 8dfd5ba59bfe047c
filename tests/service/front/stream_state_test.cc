// All transitions in stream_state.h occur. FrontTest checks that no others occur.
#include "service/front/stream_state.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/service/front/simulated_workers.h"

namespace tidepool::service {
namespace {

// The table of stream_state.h, written again, independently.
TEST(StreamStateTest, TheTableAgreesWithItsHeader) {
  using enum StreamState;
  const std::map<StreamState, std::vector<StreamState>> table = {
      {kStarting, {kRunning, kInLine, kWaitingForWorker, kEnded}},
      {kRunning, {kBackingOff, kInLine, kWaitingForWorker, kMigrating, kEnded}},
      {kBackingOff, {kInLine, kEnded}},
      {kInLine, {kRunning, kAlone, kWaitingForWorker, kEnded}},
      {kWaitingForWorker, {kRunning, kInLine, kEnded}},
      {kAlone, {kRunning, kBackingOff, kMigrating, kEnded}},
      {kMigrating, {kRunning, kAlone, kInLine, kWaitingForWorker, kEnded}},
      {kEnded, {}},
  };
  ASSERT_EQ(table.size(), kStreamStates);
  for (const auto& [from, next] : table) {
    for (size_t i = 0; i < kStreamStates; ++i) {
      const auto to = static_cast<StreamState>(i);
      const bool told = std::find(next.begin(), next.end(), to) != next.end();
      EXPECT_EQ(MayFollow(from, to), told) << static_cast<int>(from) << " to " << i;
    }
  }
}

class StreamWalkTest : public SimulatedWorkersTest {
 protected:
  bool Chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  PuppetLink* AnyWorker() { return workers_[random_() % workers_.size()]; }

  void Drain(PuppetLink* worker) {
    worker->SayState(worker::v1::DRAINING);
    const auto runs = worker->runs;
    for (const auto& run : runs) {
      if (!run->gone) run->events.on_end(absl::UnavailableError("draining"), EndedBy::kDrain);
    }
    loop_.RunAll();
  }

  // Makes random events that affect streams.
  void Disturb() {
    // The deadline of a stream ends it only when its worker leaves.
    const absl::Duration timeout = Chance(0.2) ? absl::Seconds(2) : absl::Minutes(60);
    if (Chance(0.3)) Ask(static_cast<int>(random_() % 40), "", timeout);
    if (Chance(0.1)) Kill(AnyWorker());
    if (Chance(0.1)) Drain(AnyWorker());
    if (Chance(0.05)) {
      for (PuppetLink* worker : workers_) Drain(worker);
      Ask(static_cast<int>(random_() % 40));
    }
    if (Chance(0.02)) {
      for (PuppetLink* worker : workers_) Kill(worker);
    }
    for (Client& client : clients_) {
      if (client.status.has_value() || !Chance(0.02)) continue;
      client.generation->Cancel(absl::CancelledError("gone"));
    }
    loop_.RunAll();
  }

  std::string Missing() const {
    std::string missing;
    for (size_t from = 0; from < kStreamStates; ++from) {
      for (size_t to = 0; to < kStreamStates; ++to) {
        const auto one = static_cast<StreamState>(from), other = static_cast<StreamState>(to);
        if (!MayFollow(one, other) || core_->transitions().Count(one, other) > 0) continue;
        absl::StrAppend(&missing, from, " to ", to, ", ");
      }
    }
    return missing;
  }

  std::mt19937_64 random_{20261124};
};

TEST_F(StreamWalkTest, GoesEveryWayOfTheTable) {
  constexpr int kMaxTicks = 100'000;
  poison_ = {{1, 0}, {2, 3}, {3, 20}};
  unpreparable_ = 4;
  int ticks = 0;
  for (; ticks < kMaxTicks && !Missing().empty(); ++ticks) {
    // In 60 of 100 ticks there are no disturbances, so that the calm is long enough for a trial.
    if (ticks % 100 < 40) Disturb();
    Tick();
    if (Chance(0.02)) Drain(AnyWorker());
  }
  EXPECT_EQ(Missing(), "") << ticks;
}

}  // namespace
}  // namespace tidepool::service
