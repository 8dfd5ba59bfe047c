#include "service/worker/migration_offer.h"

#include <gtest/gtest.h>

namespace tidepool::service {
namespace {

TEST(MigrationOfferTest, IsDueIfTheResponseWillNotFinishInTime) {
  MigrationOffer offer;
  offer.OnStart(absl::Seconds(10), /*position=*/0, /*max_tokens=*/100);
  EXPECT_FALSE(offer.due());
  // The speed is one token per second, and 96 tokens are left.
  offer.OnWorkerEnd(absl::Seconds(14), absl::Seconds(109), /*position=*/4);
  EXPECT_TRUE(offer.due());
}

TEST(MigrationOfferTest, IsNotDueIfTheResponseWillFinishInTime) {
  MigrationOffer offer;
  offer.OnStart(absl::Seconds(10), /*position=*/0, /*max_tokens=*/100);
  offer.OnWorkerEnd(absl::Seconds(14), absl::Seconds(110), /*position=*/4);
  EXPECT_FALSE(offer.due());
}

TEST(MigrationOfferTest, MeasuresTheSpeedOfThisAttemptOnly) {
  MigrationOffer offer;
  offer.OnStart(absl::Seconds(0), /*position=*/50, /*max_tokens=*/60);
  // The speed is 2 tokens in 10 seconds, so the other 8 tokens need 40 seconds.
  offer.OnWorkerEnd(absl::Seconds(10), absl::Seconds(49), /*position=*/52);
  EXPECT_TRUE(offer.due());
}

TEST(MigrationOfferTest, IsDueBeforeTheFirstToken) {
  MigrationOffer offer;
  offer.OnStart(absl::Seconds(0), /*position=*/50, /*max_tokens=*/60);
  offer.OnWorkerEnd(absl::Seconds(1), absl::Hours(1), /*position=*/50);
  EXPECT_TRUE(offer.due());
}

TEST(MigrationOfferTest, IsDueAtTheStartIfTheWorkerIsEnding) {
  MigrationOffer offer;
  offer.OnWorkerEnd(absl::Seconds(1), absl::Hours(1), /*position=*/0);
  EXPECT_FALSE(offer.due());
  offer.OnStart(absl::Seconds(2), /*position=*/0, /*max_tokens=*/2);
  EXPECT_TRUE(offer.due());
}

TEST(MigrationOfferTest, IsTakenOnce) {
  MigrationOffer offer;
  offer.OnStart(absl::Seconds(0), /*position=*/0, /*max_tokens=*/2);
  offer.OnWorkerEnd(absl::Seconds(1), absl::Seconds(1), /*position=*/0);
  EXPECT_TRUE(offer.TakeDue());
  EXPECT_FALSE(offer.TakeDue());
}

}  // namespace
}  // namespace tidepool::service
