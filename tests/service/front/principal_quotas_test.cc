#include "service/front/principal_quotas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/base/retry_after.h"
#include "tests/fakes/manual_clock.h"

namespace tidepool::service {
namespace {

using testing::HasSubstr;
using Place = PrincipalQuotas::Place;

class PrincipalQuotasTest : public testing::Test {
 protected:
  // Returns how many requests in a row are accepted, at most 100. Each request ends at once.
  int StartMany(const std::string& principal, const PrincipalLimits& limits) {
    int started = 0;
    while (started < 100 && quotas_.Acquire(principal, limits).ok()) ++started;
    return started;
  }

  fakes::ManualClock clock_;
  PrincipalQuotas quotas_{&clock_};
};

TEST_F(PrincipalQuotasTest, WithoutLimitsEverythingStarts) { EXPECT_EQ(StartMany("a", {}), 100); }

TEST_F(PrincipalQuotasTest, ConcurrencyCountsRunningRequests) {
  const PrincipalLimits two = {.at_once = 2};
  Place first = *quotas_.Acquire("a", two);
  Place second = *quotas_.Acquire("a", two);
  const absl::Status refused = quotas_.Acquire("a", two).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("'a' has 2 generations running"));
  EXPECT_EQ(base::RetryAfterOf(refused), absl::Seconds(1));
  EXPECT_TRUE(quotas_.Acquire("b", two).ok());
  first.reset();
  EXPECT_TRUE(quotas_.Acquire("a", two).ok());
}

TEST_F(PrincipalQuotasTest, ARateFillsEvenly) {
  const PrincipalLimits limits = {.per_minute = 30};
  EXPECT_EQ(StartMany("a", limits), 30);
  EXPECT_THAT(std::string(quotas_.Acquire("a", limits).status().message()),
              HasSubstr("retry in 2 s"));
  clock_.Advance(absl::Seconds(4));
  EXPECT_EQ(StartMany("a", limits), 2);
  EXPECT_EQ(StartMany("b", limits), 30);
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ(StartMany("a", limits), 30);
}

TEST_F(PrincipalQuotasTest, RefusalsCostNothing) {
  const PrincipalLimits limits = {.per_minute = 60, .at_once = 1};
  Place running = *quotas_.Acquire("a", limits);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(quotas_.Acquire("a", limits).ok());
  running.reset();
  EXPECT_EQ(StartMany("a", limits), 59);
}

TEST_F(PrincipalQuotasTest, APlaceMayOutliveTheQuotas) {
  Place place;
  {
    PrincipalQuotas quotas(&clock_);
    place = *quotas.Acquire("a", {.at_once = 1});
  }
  place.reset();
}

}  // namespace
}  // namespace tidepool::service
