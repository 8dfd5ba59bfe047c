// What a principal's limits do to its generations at a front.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

class PrincipalLimitsTest : public FrontTest {
 protected:
  void BeginAs(const std::string& principal, const PrincipalLimits& limits, int32_t priority,
               Client* client) {
    v1::GenerateRequest request = Text();
    request.set_priority(priority);
    GenerationInput input = {.request = std::move(request),
                             .principal = principal,
                             .limits = limits,
                             .deadline = absl::InfiniteDuration()};
    client->generation = core_->Generate(std::move(input), client);
    loop_.RunAll();
  }
};

TEST_F(PrincipalLimitsTest, APriorityIsWhatItsPrincipalMayHaveAtMost) {
  PuppetLink* worker = AddWorker("a");
  const auto priority = [&](int32_t asked, const PrincipalLimits& limits) {
    Client client;
    BeginAs("alice", limits, asked, &client);
    worker->AnswerPrepare({1, 2});
    client.generation->Cancel(absl::CancelledError("seen"));
    return worker->runs.back()->start.priority();
  };
  EXPECT_EQ(priority(100, {}), 100);
  EXPECT_EQ(priority(100, {.max_priority = 7}), 7);
  EXPECT_EQ(priority(5, {.max_priority = 7}), 5);
  EXPECT_EQ(priority(0, {.max_priority = -3}), -3);
  EXPECT_EQ(priority(-50, {.max_priority = -3}), -50);
}

}  // namespace
}  // namespace tidepool::service
