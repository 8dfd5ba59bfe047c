// The limits of principals and of workers, for generations at a front.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/retry_after.h"
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

TEST_F(PrincipalLimitsTest, APriorityIsLimitedToThatOfItsPrincipal) {
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
  core_ = std::make_unique<FrontCore>(
      &loop_, &clock_, store_.get(), [](LogLevel, absl::string_view) {},
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

  // When a generation ends, its slot is free for another one.
  other.generation->Cancel(absl::CancelledError("enough"));
  greedy.front()->generation->Cancel(absl::CancelledError("enough"));
  EXPECT_TRUE(one_more());
}

// All requests share the loop. So checks that take time in proportion to a request's length run on
// other threads.
TEST_F(PrincipalLimitsTest, ACheckedRequestIsNotCheckedAgainOnTheLoop) {
  PuppetLink* worker = AddWorker("a");
  Client refused, taken;
  const auto begin = [this](const absl::Status& checked, Client* client) {
    client->generation =
        core_->Generate({.request = v1::GenerateRequest(), .checked = checked}, client);
    loop_.RunAll();
  };
  begin(absl::InvalidArgumentError("no input"), &refused);
  ASSERT_TRUE(refused.status.has_value());
  EXPECT_EQ(*refused.status, absl::InvalidArgumentError("no input"));
  begin(absl::OkStatus(), &taken);
  EXPECT_FALSE(taken.status.has_value());
  EXPECT_EQ(worker->prepares.size(), 1);
  taken.generation->Cancel(absl::CancelledError("end of the test"));
}

TEST_F(PrincipalLimitsTest, TextsOfOnePrincipalLeaveRoomForOthers) {
  PuppetLink* worker = AddWorker("a");
  std::vector<absl::Status> ends;
  const auto ask = [&](const std::string& principal) {
    core_->texts()->Tokenize(v1::TokenizeRequest(), {.principal = principal},
                             [&ends](const absl::StatusOr<v1::TokenizeResponse>& response) {
                               ends.push_back(response.status());
                             });
  };
  while (ends.empty() && worker->texts.size() < 1000) ask("greedy");
  ASSERT_EQ(ends.size(), 1);
  EXPECT_TRUE(absl::IsResourceExhausted(ends[0])) << ends[0];
  EXPECT_TRUE(base::RetryAfterOf(ends[0]).has_value());
  EXPECT_LT(worker->texts.size(), 64);
  const size_t before = worker->texts.size();
  ask("other");
  EXPECT_EQ(worker->texts.size(), before + 1);

  // A call that has ended frees its slot.
  for (const auto& done : {worker->texts.front(), worker->texts.back()}) {
    done(v1::TokenizeResponse());
  }
  worker->texts.erase(worker->texts.begin());
  worker->texts.pop_back();
  ends.clear();
  ask("greedy");
  EXPECT_TRUE(ends.empty());
}

// Calls of Complete whose responses have a size that the test chooses.
class WholeResponseTest : public FrontTest {
 protected:
  struct Call {
    WholeResponse whole;
    std::optional<absl::StatusOr<v1::CompleteResponse>> end = {};
    PuppetLink::Run_* run = nullptr;
  };

  std::unique_ptr<Call> Complete(PuppetLink* worker, const std::string& principal = "") {
    auto call = std::make_unique<Call>(Call{.whole = core_->response_budget().Begin(principal)});
    core_->Complete(
        {.request = Text(), .principal = principal}, &call->whole,
        [call = call.get()](absl::StatusOr<v1::CompleteResponse> response) {
          call->end = std::move(response);
        },
        [](const std::shared_ptr<ResponseStream>&) {});
    loop_.RunAll();
    worker->AnswerPrepare({1, 2, 3});
    call->run = worker->runs.back().get();
    return call;
  }
  void Say(int64_t bytes, Call* call) {
    call->run->SayLong(10, static_cast<size_t>(bytes));
    loop_.RunAll();
  }
  void End(Call* call) {
    call->run->Say({11}, v1::STOP);
    call->run->events.on_end(absl::OkStatus(), EndedBy::kWorker);
    loop_.RunAll();
  }
};

constexpr int64_t kMiB = int64_t{1} << 20;

TEST_F(WholeResponseTest, EndsPastItsLimitAndNamesTheCallThatHasNone) {
  PuppetLink* worker = AddWorker("a");
  const auto call = Complete(worker);
  for (int i = 0; i < 31; ++i) Say(kMiB, call.get());
  EXPECT_FALSE(call->end.has_value());
  EXPECT_GE(core_->response_budget().bytes(), 31 * kMiB);
  Say(kMiB, call.get());
  ASSERT_TRUE(call->end.has_value());
  EXPECT_EQ(call->end->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      call->end->status().message(),
      "the response exceeds 32 MiB, the limit for one message; use Generate, which streams, or "
      "request fewer tokens or logprobs");
  EXPECT_TRUE(call->run->gone);
  EXPECT_EQ(core_->response_budget().bytes(), 0);
}

TEST_F(WholeResponseTest, CountsLogprobsAsTheMemoryThatTheyTake) {
  PuppetLink* worker = AddWorker("a");
  const auto call = Complete(worker);
  worker::v1::RunResponse response;
  response.set_attempt(call->run->start.attempt());
  response.add_token_ids(10);
  v1::TokenLogprob* logprob = response.add_logprobs();
  for (int i = 0; i < 20; ++i) logprob->add_top()->set_token("x");
  call->run->position = 1;
  call->run->events.on_response(response);
  loop_.RunAll();
  EXPECT_GE(core_->response_budget().bytes(), 20 * static_cast<int64_t>(sizeof(v1::TopLogprob)));
  End(call.get());
  ASSERT_TRUE(call->end.has_value());
  EXPECT_TRUE(call->end->ok()) << call->end->status();
}

TEST_F(WholeResponseTest, SharesItsRoomWithTheOthers) {
  core_ = std::make_unique<FrontCore>(
      &loop_, &clock_, store_.get(), [](LogLevel, absl::string_view) {},
      FrontLimits{.max_whole_bytes = 4 * kMiB});
  PuppetLink* worker = AddWorker("a");
  const auto first = Complete(worker), second = Complete(worker), brief = Complete(worker);
  for (int i = 0; i < 3; ++i) Say(kMiB, first.get());
  Say(2 * kMiB, second.get());
  ASSERT_TRUE(second->end.has_value());
  EXPECT_EQ(second->end->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(base::RetryAfterOf(second->end->status()).has_value());
  // The call that has ended frees its part of the budget.
  Say(kMiB / 2, first.get());
  for (Call* call : {first.get(), brief.get()}) {
    EXPECT_FALSE(call->end.has_value());
    End(call);
    ASSERT_TRUE(call->end.has_value());
    EXPECT_TRUE(call->end->ok()) << call->end->status();
  }
}

TEST_F(WholeResponseTest, OnePrincipalLeavesRoomForOthers) {
  core_ = std::make_unique<FrontCore>(
      &loop_, &clock_, store_.get(), [](LogLevel, absl::string_view) {},
      FrontLimits{.max_whole_bytes = 7 * kMiB});
  PuppetLink* worker = AddWorker("a");
  const auto one = Complete(worker, "greedy"), two = Complete(worker, "greedy");
  for (Call* call : {one.get(), two.get()}) {
    for (int i = 0; i < 2; ++i) Say(kMiB, call);
  }
  EXPECT_FALSE(one->end.has_value());
  ASSERT_TRUE(two->end.has_value());
  EXPECT_EQ(two->end->status().code(), absl::StatusCode::kResourceExhausted);
  const auto other = Complete(worker, "other");
  for (int i = 0; i < 2; ++i) Say(kMiB - kMiB / 8, other.get());
  for (Call* call : {one.get(), other.get()}) {
    EXPECT_FALSE(call->end.has_value());
    End(call);
    ASSERT_TRUE(call->end.has_value());
    EXPECT_TRUE(call->end->ok()) << call->end->status();
  }
}

using WorkerLimitsTest = FrontTest;

TEST_F(WorkerLimitsTest, ARequestThatIsRefusedAtOnceCountsAsAnErrorOfItsModel) {
  AddWorker("a");
  v1::GenerateRequest wrong = Text();
  wrong.mutable_sampling()->set_top_p(7);
  v1::GenerateRequest elsewhere = wrong;
  elsewhere.set_model("no such model");
  Client first, second;
  Begin(&first, wrong);
  Begin(&second, elsewhere);
  ASSERT_TRUE(first.status.has_value() && second.status.has_value());
  ASSERT_EQ(core_->requests()->metrics()->size(), 1);
  const RequestMetrics& metrics = core_->requests()->metrics()->begin()->second;
  EXPECT_EQ(metrics.ends[static_cast<int>(RequestEnd::kError)], 1);
  EXPECT_EQ(metrics.e2e_latency.count(), 0);
}

TEST_F(WorkerLimitsTest, ErrorsOfABurstNameTheSizeOfTheQueue) {
  PuppetLink* a = AddWorker("a");
  a->places = 3;
  a->SayState();
  // All requests are sent before the next state of the worker includes the first one.
  std::array<Client, 6> burst;
  for (Client& client : burst) Begin(&client, Text());
  while (!a->prepares.empty()) {
    a->AnswerPrepare({1, 2, 3});
    a->prepares.pop_back();
  }
  ASSERT_EQ(a->runs.size(), burst.size());
  Client refused;
  Begin(&refused, Text());
  ASSERT_TRUE(refused.status.has_value());
  EXPECT_EQ(refused.status->message(), "the queue is full: 3 requests run or wait; retry later");
}

TEST_F(WorkerLimitsTest, AFullQueueRefusesWithoutACallToItsWorker) {
  PuppetLink* a = AddWorker("a");
  a->sequences = 2;
  a->places = 3;
  a->SayState();
  Client first, refused, next, last, elsewhere;
  Begin(&first, Text());
  a->AnswerPrepare({1, 2, 3});
  Begin(&refused, Text());
  ASSERT_TRUE(refused.status.has_value());
  EXPECT_EQ(base::RetryAfterOf(*refused.status), absl::Seconds(2));
  EXPECT_EQ(refused.status->message(), "the queue is full: 3 requests run or wait; retry later");
  EXPECT_EQ(a->prepares.size(), 1);
  // When a run has ended, its slot is free, even before the worker's next state arrives.
  a->runs[0]->Say({10}, v1::STOP);
  a->runs[0]->events.on_end(absl::OkStatus(), EndedBy::kWorker);
  first.Take();
  Begin(&next, Text());
  EXPECT_EQ(a->prepares.size(), 2);
  a->AnswerPrepare({1, 2, 3});
  Begin(&last, Text());
  ASSERT_TRUE(last.status.has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(*last.status));
  PuppetLink* b = AddWorker("b");
  Begin(&elsewhere, Text());
  EXPECT_FALSE(elsewhere.status.has_value());
  EXPECT_EQ(a->prepares.size() + b->prepares.size(), 3);
  for (Client* client : {&next, &elsewhere}) {
    client->generation->Cancel(absl::CancelledError("end of the test"));
  }
}

}  // namespace
}  // namespace tidepool::service
