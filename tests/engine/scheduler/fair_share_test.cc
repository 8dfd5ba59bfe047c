#include "engine/scheduler/fair_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace tidepool::engine {
namespace {

TEST(FairShareTest, IdleTimeGivesNoCredit) {
  FairShare share;
  share.BeginWaiting("busy");
  share.Charge("busy", 1000);
  share.BeginWaiting("late");
  EXPECT_EQ(share.served("late"), 1000);
  share.Charge("late", 10);
  share.EndWaiting("late");
  share.Charge("late", 500);  // for tokens of its running sequences
  share.Charge("busy", 100);
  share.BeginWaiting("late");
  EXPECT_EQ(share.served("late"), 1510) << "and time away pays nothing back";
}

TEST(FairShareTest, AnEmptyQueueStartsAtTheCountOfTheLastPrincipal) {
  FairShare share;
  share.BeginWaiting("a");
  share.Charge("a", 70);
  share.EndWaiting("a");
  share.BeginWaiting("b");
  EXPECT_EQ(share.served("b"), 70);
  share.BeginWaiting("b");
  share.EndWaiting("b");
  share.Charge("b", 5);
  EXPECT_EQ(share.served("b"), 75) << "one of its two still waits";
}

TEST(FairShareTest, ForgetsTheLeastServedPrincipals) {
  FairShare share;
  share.BeginWaiting("always");
  for (size_t i = 0; i <= FairShare::kMaxIdle; ++i) {
    const std::string name = absl::StrCat("p", i);
    share.BeginWaiting(name);
    share.Charge(name, static_cast<int64_t>(i));
    share.EndWaiting(name);
  }
  share.Charge("p0", 1000);  // p0 was forgotten, so nobody is charged
  share.BeginWaiting("p0");
  EXPECT_EQ(share.served("p0"), 0);
  share.BeginWaiting("p7");
  EXPECT_EQ(share.served("p7"), 7);
}

// A simple implementation of the rules, in time linear in the number of principals.
class PlainShare {
 public:
  struct Account {
    int64_t served = 0;
    int64_t waiting = 0;
  };

  void BeginWaiting(const std::string& name) {
    Account& account = accounts_[name];
    if (account.waiting++ > 0) return;
    std::optional<int64_t> least;
    for (const auto& [other_name, other] : accounts_) {
      if (other_name == name || other.waiting == 0) continue;
      least = std::min(least.value_or(other.served), other.served);
    }
    account.served = std::max(account.served, least.value_or(last_left_));
  }
  void EndWaiting(const std::string& name) {
    Account& account = accounts_.at(name);
    if (--account.waiting > 0) return;
    last_left_ = account.served;
    auto least = accounts_.end();
    size_t idle = 0;
    for (auto it = accounts_.begin(); it != accounts_.end(); ++it) {
      if (it->second.waiting > 0) continue;
      ++idle;
      if (least == accounts_.end() || it->second.served < least->second.served) least = it;
    }
    if (idle > FairShare::kMaxIdle) accounts_.erase(least);
  }
  void Charge(const std::string& name, int64_t cost) {
    if (const auto found = accounts_.find(name); found != accounts_.end()) {
      found->second.served += cost;
    }
  }
  const std::map<std::string, Account>& accounts() const { return accounts_; }

 private:
  std::map<std::string, Account> accounts_;
  int64_t last_left_ = 0;
};

TEST(FairShareTest, DecidesAsTheRulesRead) {
  FairShare share;
  PlainShare plain;
  std::minstd_rand random{1};
  std::map<std::string, int> waiting;
  // There are more principals than are remembered, so that some are forgotten.
  const auto name = [&] { return absl::StrCat("p", random() % (FairShare::kMaxIdle * 5 / 4)); };
  for (int step = 0; step < 30000; ++step) {
    const std::string one = name();
    if (random() % 2 == 0) {
      share.BeginWaiting(one), plain.BeginWaiting(one);
      ++waiting[one];
    } else if (!waiting.empty()) {
      auto found = waiting.lower_bound(one);
      if (found == waiting.end()) found = waiting.begin();
      share.EndWaiting(found->first), plain.EndWaiting(found->first);
      if (--found->second == 0) waiting.erase(found);
    }
    const std::string other = name();
    const auto cost = static_cast<int64_t>(random() % 4);
    share.Charge(other, cost), plain.Charge(other, cost);
    if (step % 64 != 0) continue;
    for (const auto& [who, requests] : waiting) {
      ASSERT_EQ(share.served(who), plain.accounts().at(who).served) << who << ", step " << step;
    }
  }
}

// If every turn examined all waiting principals, the test would take too long.
TEST(FairShareTest, ManyPrincipalsThatWaitAreNotCountedThrough) {
  constexpr int kPrincipals = 200000;
  FairShare share;
  for (int i = 0; i < kPrincipals; ++i) share.BeginWaiting(absl::StrCat("p", i));
  for (int i = 0; i < kPrincipals; ++i) share.Charge(absl::StrCat("p", i), i);
  share.BeginWaiting("late");
  EXPECT_EQ(share.served("late"), 0);
  share.EndWaiting("p0");
  share.EndWaiting("late");
  share.BeginWaiting("late");
  EXPECT_EQ(share.served("late"), 1);
}

}  // namespace
}  // namespace tidepool::engine
