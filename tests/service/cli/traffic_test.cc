// The load generator: what it sends, when it sends it, and how it reports responses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/retry_after.h"
#include "service/cli/traffic_plan.h"
#include "service/cli/traffic_report.h"
#include "service/cli/traffic_run.h"
#include "tests/fakes/manual_clock.h"
#include "tests/service/base/manual_executor.h"

namespace tidepool::service {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr absl::Duration kSecond = absl::Seconds(1);

TrafficShape Shape() {
  return {.rate = 50,
          .prompt_tokens = {16, 40},
          .output_tokens = {3, 9},
          .shared_prompt_tokens = 10,
          .priorities = {0, 5},
          .vocab_size = 300,
          .seed = 7};
}

TEST(TrafficPlanTest, EqualSeedsGiveEqualPlans) {
  TrafficPlan one(Shape()), same(Shape());
  TrafficShape other_shape = Shape();
  other_shape.seed = 8;
  TrafficPlan other(other_shape);
  bool differs = false;
  for (int i = 0; i < 20; ++i) {
    const TrafficRequest a = one.Next(), b = same.Next(), c = other.Next();
    EXPECT_EQ(a.arrival, b.arrival);
    EXPECT_EQ(a.prompt, b.prompt);
    EXPECT_EQ(a.output_tokens, b.output_tokens);
    EXPECT_EQ(a.priority, b.priority);
    differs = differs || a.prompt != c.prompt;
  }
  EXPECT_TRUE(differs);
}

TEST(TrafficPlanTest, DrawsRequestsOfTheGivenShape) {
  TrafficPlan plan(Shape());
  std::set<size_t> lengths;
  std::set<int64_t> outputs;
  std::set<int32_t> priorities;
  std::set<std::vector<int32_t>> beginnings, prompts;
  for (int i = 0; i < 200; ++i) {
    const TrafficRequest request = plan.Next();
    lengths.insert(request.prompt.size());
    outputs.insert(request.output_tokens);
    priorities.insert(request.priority.value());
    beginnings.insert({request.prompt.begin(), request.prompt.begin() + 10});
    prompts.insert(request.prompt);
    for (const int32_t token : request.prompt) ASSERT_TRUE(token >= 0 && token < 300);
  }
  EXPECT_THAT(lengths, ElementsAre(16, 40));
  EXPECT_THAT(outputs, ElementsAre(3, 9));
  EXPECT_THAT(priorities, ElementsAre(0, 5));
  EXPECT_EQ(beginnings.size(), 1u);
  EXPECT_EQ(prompts.size(), 200u);
}

// The gaps of a Poisson process have the mean 1 / rate, and the same standard deviation.
TEST(TrafficPlanTest, RequestsComeAtRandomTimesOfTheRate) {
  TrafficPlan plan(Shape());
  constexpr int kCount = 20'000;
  double sum = 0, squares = 0;
  absl::Duration before;
  for (int i = 0; i < kCount; ++i) {
    const absl::Duration arrival = plan.Next().arrival;
    const double gap = absl::ToDoubleSeconds(arrival - before);
    ASSERT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
    before = arrival;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 0.02, 0.02 * 0.03);
  EXPECT_NEAR(squares / kCount - mean * mean, mean * mean, mean * mean * 0.06);
}

RequestOutcome Outcome(double planned_s, std::vector<double> tokens_at_s, absl::Status status) {
  RequestOutcome outcome = {.planned = absl::Seconds(planned_s),
                            .sent = absl::Seconds(planned_s),
                            .ended = absl::Seconds(planned_s),
                            .status = std::move(status)};
  for (const double at : tokens_at_s) {
    outcome.arrivals.push_back({absl::Seconds(at), 2});
    outcome.ended = absl::Seconds(at);
  }
  outcome.prompt_tokens = 10;
  outcome.cached_tokens = 4;
  return outcome;
}

TEST(TrafficReportTest, CountsRequestsByTheirOutcome) {
  TrafficReport report({.begin = kSecond, .end = 3 * kSecond});
  report.Add(Outcome(1.0, {1.5, 1.6, 2.0}, absl::OkStatus()));
  report.Add(Outcome(2.0, {2.25, 3.5}, absl::OkStatus()));   // ends after the window
  report.Add(Outcome(0.5, {0.75, 1.25}, absl::OkStatus()));  // was due before the window
  report.Add(Outcome(1.1, {}, absl::ResourceExhaustedError("full")));
  report.Add(Outcome(1.2, {}, absl::ResourceExhaustedError("full")));
  report.Add(Outcome(1.3, {}, absl::UnavailableError("away")));
  report.Add(Outcome(1.4, {1.5}, absl::InternalError("broke")));
  report.Add(Outcome(2.9, {}, absl::CancelledError("the run is over")));
  const Json json = report.ToJson();
  const Json& requests = json["requests"];
  EXPECT_EQ(requests["sent"], 7);
  EXPECT_EQ(requests["accepted"], 3);
  EXPECT_EQ(requests["completed"], 2);
  EXPECT_EQ(requests["refused"], Json::object({{"RESOURCE_EXHAUSTED", 2}, {"UNAVAILABLE", 1}}));
  EXPECT_EQ(requests["broken"], Json::object({{"INTERNAL", 1}}));
  EXPECT_EQ(requests["unfinished"], 1);
  // Two requests ended within the two seconds, and six messages of two tokens arrived.
  EXPECT_EQ(json["goodput"]["requests_per_s"], 1.0);
  EXPECT_EQ(json["goodput"]["tokens_per_s"], 6.0);
  EXPECT_EQ(json["tokens_per_message"], 2.0);
  EXPECT_EQ(json["prompt_tokens"], 20);
  EXPECT_EQ(json["cached_tokens"], 8);
}

TEST(TrafficReportTest, LatenciesAreThoseOfTheWindow) {
  TrafficReport report({.begin = kSecond, .end = 3 * kSecond});
  report.Add(Outcome(1.0, {1.5, 1.625, 2.0}, absl::OkStatus()));
  report.Add(Outcome(2.0, {2.25, 3.5}, absl::OkStatus()));
  report.Add(Outcome(0.5, {0.75, 1.25}, absl::OkStatus()));
  const Json json = report.ToJson();
  EXPECT_EQ(json["first_token_s"]["p50"], 0.25);
  EXPECT_EQ(json["first_token_s"]["max"], 0.5);
  // The times are 0.125, 0.375 and 0.5. The token at 3.5 arrived after the window.
  EXPECT_EQ(json["inter_token_s"]["p50"], 0.375);
  EXPECT_EQ(json["inter_token_s"]["p99"], 0.5);
  EXPECT_TRUE(
      TrafficReport({.begin = kSecond, .end = 3 * kSecond}).ToJson()["first_token_s"].is_null());
}

// Holds requests until the test responds to them.
class HeldClient final : public TrafficClient {
 public:
  absl::StatusOr<ServedModel> FindModel() override { return absl::UnimplementedError("unused"); }
  void Send(const TrafficRequest&, std::function<void(TrafficResponse)> done) override {
    held.push_back(std::move(done));
  }
  void CancelAll() override { AnswerAll({.status = absl::CancelledError("cancelled")}); }

  void AnswerAll(const TrafficResponse& response) {
    for (const auto& done : std::exchange(held, {})) done(response);
  }

  std::vector<std::function<void(TrafficResponse)>> held;
};

class TrafficRunTest : public ::testing::Test {
 protected:
  void Start(const TrafficRunOptions& options, double rate) {
    TrafficShape shape = Shape();
    shape.rate = rate;
    plan_.emplace(shape);
    run_.emplace(
        TrafficRunParts{.plan = &*plan_, .client = &client_, .loop = &loop_, .clock = &clock_},
        options);
    loop_.Post([this] {
      run_->Start([this](const RequestOutcome& outcome) { outcomes_.push_back(outcome); },
                  [this] { ++ends_; });
    });
    loop_.RunAll();
  }

  void Answer(const TrafficResponse& response) {
    client_.AnswerAll(response);
    loop_.RunAll();
  }

  std::vector<absl::StatusCode> Codes() const {
    std::vector<absl::StatusCode> codes;
    for (const RequestOutcome& outcome : outcomes_) codes.push_back(outcome.status.code());
    return codes;
  }

  fakes::ManualClock clock_;
  ManualExecutor loop_{&clock_};
  HeldClient client_;
  std::optional<TrafficPlan> plan_;
  std::optional<TrafficRun> run_;
  std::vector<RequestOutcome> outcomes_;
  int ends_ = 0;
};

TEST_F(TrafficRunTest, ARateIsKeptWhateverBecomesOfTheRequests) {
  Start({.sending = 10 * kSecond, .patience = kSecond}, /*rate=*/50);
  loop_.Advance(5 * kSecond);
  // No request has a response yet, but later requests were sent anyway.
  EXPECT_NEAR(client_.held.size(), 250, 60);
  loop_.Advance(5 * kSecond);
  EXPECT_NEAR(client_.held.size(), 500, 90);
  const size_t sent = client_.held.size();
  EXPECT_EQ(ends_, 0);
  loop_.Advance(kSecond);  // the time for which the generator waits for responses
  EXPECT_EQ(outcomes_.size(), sent);
  EXPECT_THAT(Codes(), Each(absl::StatusCode::kCancelled));
  EXPECT_EQ(ends_, 1);
}

TEST_F(TrafficRunTest, CallersSendOneAfterTheOther) {
  Start({.callers = 3, .sending = 10 * kSecond, .patience = kSecond}, /*rate=*/0);
  EXPECT_EQ(client_.held.size(), 3u);
  loop_.Advance(kSecond);
  EXPECT_EQ(client_.held.size(), 3u);
  Answer({.arrivals = {{clock_.Monotonic(), 4}}});
  EXPECT_EQ(outcomes_.size(), 3u);
  EXPECT_EQ(outcomes_[0].arrivals[0].time, kSecond);
  EXPECT_EQ(outcomes_[0].planned, absl::ZeroDuration());
  EXPECT_EQ(client_.held.size(), 3u);
  // A refused request is sent again after the retry delay.
  Answer({.status = base::WithRetryAfter(absl::ResourceExhaustedError("full"), 2 * kSecond)});
  EXPECT_EQ(client_.held.size(), 0u);
  loop_.Advance(absl::Milliseconds(1900));
  EXPECT_EQ(client_.held.size(), 0u);
  loop_.Advance(absl::Milliseconds(100));
  EXPECT_EQ(client_.held.size(), 3u);
  // Nothing is sent after the end.
  loop_.Advance(7 * kSecond);
  Answer({});
  EXPECT_EQ(client_.held.size(), 0u);
  EXPECT_EQ(outcomes_.size(), 9u);
  EXPECT_EQ(ends_, 1);
}

TEST_F(TrafficRunTest, RefusedRequestsAreSentAgainOnlyIfAskedTo) {
  const TrafficResponse refusal = {
      .status = base::WithRetryAfter(absl::ResourceExhaustedError("full"), kSecond)};
  Start({.sending = 9 * kSecond, .patience = kSecond}, /*rate=*/0.5);
  loop_.Advance(8 * kSecond);
  const size_t sent = client_.held.size();
  Answer(refusal);
  EXPECT_EQ(outcomes_.size(), sent);
  EXPECT_TRUE(client_.held.empty());
  EXPECT_THAT(Codes(), Each(absl::StatusCode::kResourceExhausted));
  EXPECT_GT(sent, 0u);
}

TEST_F(TrafficRunTest, ARetryKeepsTheFirstPlannedTime) {
  const TrafficResponse refusal = {
      .status = base::WithRetryAfter(absl::ResourceExhaustedError("full"), kSecond)};
  Start({.callers = 1, .sending = 10 * kSecond, .patience = kSecond, .retries = 1}, /*rate=*/0);
  Answer(refusal);
  EXPECT_TRUE(outcomes_.empty());
  loop_.Advance(kSecond);
  ASSERT_EQ(client_.held.size(), 1u);
  Answer(refusal);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_EQ(outcomes_[0].planned, absl::ZeroDuration());
  EXPECT_EQ(outcomes_[0].retries, 1);
  EXPECT_EQ(outcomes_[0].ended, kSecond);
  // Permanent errors are not retried.
  loop_.Advance(kSecond);
  Answer({.status = absl::InvalidArgumentError("wrong")});
  EXPECT_EQ(outcomes_.size(), 2u);
  EXPECT_EQ(outcomes_[1].retries, 0);
}

}  // namespace
}  // namespace tidepool::service
