// What a principal's limits do to its generations at a front.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

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

TEST_F(PrincipalLimitsTest, OnePrincipalLeavesRoomForOthers) {
  core_ = std::make_unique<FrontCore>(&loop_, &clock_, store_.get(),
                                      [](LogLevel, absl::string_view) {},
                                      FrontLimits{.max_requests = 27});
  AddWorker("a");
  std::vector<std::unique_ptr<Client>> greedy;
  const auto one_more = [&] {
    BeginAs("greedy", {}, 0, greedy.emplace_back(std::make_unique<Client>()).get());
    return !greedy.back()->status.has_value();
  };
  for (int i = 0; i < 24; ++i) EXPECT_TRUE(one_more()) << i;
  EXPECT_FALSE(one_more());
  EXPECT_EQ(greedy.back()->status->code(), absl::StatusCode::kResourceExhausted);
  Client other;
  BeginAs("other", {}, 0, &other);
  EXPECT_FALSE(other.status.has_value()) << *other.status;

  // A place comes back with its generation's end.
  other.generation->Cancel(absl::CancelledError("enough"));
  greedy.front()->generation->Cancel(absl::CancelledError("enough"));
  EXPECT_TRUE(one_more());
}

}  // namespace
}  // namespace tidepool::service
