#include "engine/scheduler/admission_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tidepool::engine {
namespace {

using testing::HasSubstr;
using Places = std::vector<AdmissionSlots::Place>;

// Takes slots until one is refused.
Places TakeAll(AdmissionSlots* shares, const std::string& principal) {
  Places taken;
  while (true) {
    const absl::Status told = shares->Check(principal);
    absl::StatusOr<AdmissionSlots::Place> place = shares->Take(principal);
    EXPECT_EQ(place.status(), told);
    if (!place.ok()) return taken;
    taken.push_back(*std::move(place));
  }
}

std::string Refusal(AdmissionSlots* shares, const std::string& principal) {
  const absl::Status refused = shares->Take(principal).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  return std::string(refused.message());
}

TEST(AdmissionSlotsTest, OnePrincipalLeavesSomeSlots) {
  AdmissionSlots shares("the queue", 1088);
  const Places greedy = TakeAll(&shares, "greedy");
  EXPECT_EQ(greedy.size(), 968);  // the smallest n with n >= 8 * (1088 - n)
  EXPECT_THAT(Refusal(&shares, "greedy"), HasSubstr("'greedy' has 968 of the 968 requests"));
  const Places other = TakeAll(&shares, "other");
  EXPECT_EQ(other.size(), 107);
  EXPECT_TRUE(shares.Take("a third one").ok());
}

TEST(AdmissionSlotsTest, SharesOfTwoBecomeEvenAsPlacesComeBack) {
  AdmissionSlots shares("the queue", 170);
  Places first = TakeAll(&shares, "first");
  Places second = TakeAll(&shares, "second");
  EXPECT_GT(first.size(), second.size());
  for (int i = 0; i < 1000; ++i) {
    // The oldest request ends, and both principals try again.
    Places* longer = first.size() > second.size() ? &first : &second;
    longer->erase(longer->begin());
    for (AdmissionSlots::Place& place : TakeAll(&shares, "first")) {
      first.push_back(std::move(place));
    }
    for (AdmissionSlots::Place& place : TakeAll(&shares, "second")) {
      second.push_back(std::move(place));
    }
  }
  EXPECT_NEAR(first.size(), 80, 1);  // 8/17 of 170
  EXPECT_NEAR(second.size(), 80, 1);
}

TEST(AdmissionSlotsTest, AFewPlacesAreSharedToo) {
  AdmissionSlots shares("the queue", 3);
  const Places alone = TakeAll(&shares, "a");
  EXPECT_EQ(alone.size(), 3);
  EXPECT_THAT(Refusal(&shares, "b"), HasSubstr("the queue is full: 3 requests"));
  AdmissionSlots none("the queue", 0);
  EXPECT_TRUE(TakeAll(&none, "a").empty());
}

TEST(AdmissionSlotsTest, WithoutPrincipalsAllArePlaces) {
  AdmissionSlots shares("the front", 100);
  Places taken = TakeAll(&shares, "");
  EXPECT_EQ(taken.size(), 100);
  EXPECT_THAT(Refusal(&shares, ""), HasSubstr("the front is full: 100 requests"));
  taken.pop_back();
  EXPECT_TRUE(shares.Take("").ok());
}

TEST(AdmissionSlotsTest, TheNumberOfPlacesMayChange) {
  AdmissionSlots shares("the queue", 2);
  const Places taken = TakeAll(&shares, "");
  shares.SetPlaces(3);
  const auto third = shares.Take("");
  EXPECT_TRUE(third.ok());
  shares.SetPlaces(0);
  EXPECT_THAT(Refusal(&shares, ""), HasSubstr("the queue is full: 3 requests"));
}

TEST(AdmissionSlotsTest, APlaceMayOutliveTheShares) {
  AdmissionSlots::Place place;
  {
    AdmissionSlots shares("the queue", 1);
    place = *shares.Take("a");
  }
  place.reset();
}

}  // namespace
}  // namespace tidepool::engine
