#include "moe/layer_request.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace tidepool::moe {
namespace {

using Experts = std::vector<int64_t>;
using Start = LayerRequest::Start;

// Layer 2 with ten experts per layer: 21 is in memory, 22 is being read, 23 and 25 are absent.
LayerRequest Asked() {
  LayerRequest request(10);
  request.Begin(2);
  request.Add(21, Start::kReady);
  request.Add(22, Start::kArriving);
  request.Add(23, Start::kWaiting);
  request.Add(25, Start::kWaiting);
  return request;
}

TEST(LayerRequestTest, EndsWhenAllExpertsWereReleased) {
  LayerRequest request = Asked();
  EXPECT_FALSE(request.done());
  EXPECT_EQ(request.TakeReady(), Experts{21});
  EXPECT_TRUE(request.TakeReady().empty());
  EXPECT_TRUE(request.IsGivenOut(21));
  EXPECT_EQ(request.TakeWaiting(), 23);
  EXPECT_EQ(request.next_waiting(), 25);
  EXPECT_EQ(request.TakeWaiting(), 25);
  EXPECT_FALSE(request.has_waiting());
  for (const int64_t expert : {25, 22, 23}) request.SetReady(expert);
  EXPECT_EQ(request.TakeReady(), (Experts{25, 22, 23}));
  EXPECT_FALSE(request.has_left());
  for (const int64_t expert : {21, 22, 23}) request.Release(expert);
  EXPECT_FALSE(request.done());
  request.Release(25);
  EXPECT_TRUE(request.done());
}

TEST(LayerRequestTest, APostponedExpertWaitsInOrder) {
  LayerRequest request = Asked();
  EXPECT_EQ(request.TakeWaiting(), 23);
  request.SetReady(23);
  request.TakeReady();
  request.Postpone(23);
  request.Postpone(21);
  EXPECT_FALSE(request.IsGivenOut(21));
  EXPECT_TRUE(request.has_left());
  EXPECT_EQ(request.TakeWaiting(), 21);
  EXPECT_EQ(request.TakeWaiting(), 23);
  EXPECT_EQ(request.TakeWaiting(), 25);
}

TEST(LayerRequestTest, KeepsHowEachExpertWasFound) {
  LayerRequest request = Asked();
  request.SetFound(23, Found::kFetched);
  EXPECT_EQ(request.found(21), Found::kResident);
  EXPECT_EQ(request.found(23), Found::kFetched);
}

TEST(LayerRequestTest, AbandonReturnsTheFirstErrorAndDropsTheRequest) {
  LayerRequest request = Asked();
  request.TakeReady();
  EXPECT_FALSE(request.failed());
  request.Fail(absl::UnavailableError("first"));
  request.Fail(absl::DataLossError("second"));
  EXPECT_TRUE(request.failed());
  EXPECT_EQ(Experts(request.waiting().begin(), request.waiting().end()), (Experts{25, 23}));
  EXPECT_EQ(request.Abandon(), absl::UnavailableError("first"));
  EXPECT_TRUE(request.done());
  EXPECT_FALSE(request.failed());
  EXPECT_FALSE(request.IsGivenOut(21));
  EXPECT_FALSE(request.has_waiting());
  request.Begin(0);
  request.Add(3, Start::kReady);
  EXPECT_EQ(request.TakeReady(), Experts{3});
}

TEST(LayerRequestDeathTest, TheLastRequestMustHaveEnded) {
  LayerRequest request = Asked();
  EXPECT_DEATH(request.Begin(3), "was requested before the last one was drained");
  EXPECT_DEATH(request.Release(21), "is not in use");
}

}  // namespace
}  // namespace tidepool::moe
