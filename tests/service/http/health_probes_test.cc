#include "service/http/health_probes.h"

#include <gtest/gtest.h>

namespace tidepool::service {
namespace {

TEST(HealthProbesTest, IsLiveButNotReadyAtFirst) {
  const HealthProbes probes;
  EXPECT_EQ(probes.Healthz().status, 200);
  EXPECT_EQ(probes.Readyz().status, 503);
  EXPECT_EQ(probes.Readyz().body, "no worker accepts requests\n");
  EXPECT_EQ(probes.Health().status, 503);
}

TEST(HealthProbesTest, IsReadyWithAWorkerAndAStore) {
  HealthProbes probes;
  probes.SetReady(true);
  EXPECT_EQ(probes.Readyz().status, 200);
  EXPECT_EQ(probes.Health().status, 200);
  EXPECT_EQ(probes.Health().body, "");
  probes.SetStore(absl::UnavailableError("disk full"));
  EXPECT_EQ(probes.Readyz().body, "the session store is unavailable\n");
  EXPECT_EQ(probes.Health().status, 503);
  EXPECT_EQ(probes.Healthz().status, 200);
  probes.SetStore(absl::OkStatus());
  EXPECT_EQ(probes.Readyz().status, 200);
}

TEST(HealthProbesTest, SaysWhyItIsNotLive) {
  HealthProbes probes;
  probes.SetReady(true);
  probes.SetLive(absl::InternalError("the engine is stuck"));
  EXPECT_EQ(probes.Healthz().status, 503);
  EXPECT_EQ(probes.Healthz().body, "the engine is stuck\n");
  EXPECT_EQ(probes.Health().status, 503);
  EXPECT_EQ(probes.Readyz().status, 200);
  probes.SetLive(absl::OkStatus());
  EXPECT_EQ(probes.Healthz().status, 200);
}

TEST(HealthProbesTest, StaysUnreadyAfterStopReady) {
  HealthProbes probes;
  probes.SetReady(true);
  probes.StopReady();
  probes.SetReady(true);
  EXPECT_EQ(probes.Readyz().body, "shutting down\n");
  EXPECT_EQ(probes.Health().status, 503);
  EXPECT_EQ(probes.Healthz().status, 200);
}

TEST(HealthProbesTest, DoesNotLogFailedProbesTwice) {
  const HealthProbes probes;
  EXPECT_EQ(probes.Readyz().failure_log, HttpResponse::FailureLog::kElsewhere);
  EXPECT_EQ(probes.Health().failure_log, HttpResponse::FailureLog::kElsewhere);
}

}  // namespace
}  // namespace tidepool::service
