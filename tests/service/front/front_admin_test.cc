// The Admin calls of a front, with workers that the test controls.
#include "service/front/front_admin.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/retry_after.h"
#include "tests/fakes/manual_clock.h"

namespace tidepool::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Records the requests that the worker gets.
class AdminLink final : public WorkerLink {
 public:
  explicit AdminLink(std::string name) : name_(std::move(name)), address_(name_ + ":1") {}

  const std::string& address() const override { return address_; }
  void Prepare(worker::v1::PrepareRequest, absl::Duration,
               Done<worker::v1::PrepareResponse>) override {}
  std::unique_ptr<RunCall> Run(worker::v1::Start, absl::Duration, RunEvents) override {
    return nullptr;
  }
  void Tokenize(v1::TokenizeRequest, absl::Duration, Done<v1::TokenizeResponse>) override {}
  void Detokenize(v1::DetokenizeRequest, absl::Duration, Done<v1::DetokenizeResponse>) override {}
  void TextOf(v1::DetokenizeRequest, const std::string&, absl::Duration,
              Done<v1::DetokenizeResponse>) override {}
  void GetStats(absl::Duration, Done<v1::GetStatsResponse>) override {}
  void SetOffload(v1::SetOffloadRequest request, absl::Duration deadline,
                  Done<v1::SetOffloadResponse> done) override {
    sets.emplace_back(std::move(request), std::move(done));
    last_deadline = deadline;
  }
  void RefreshExperts(v1::RefreshExpertsRequest, absl::Duration,
                      Done<v1::RefreshExpertsResponse> done) override {
    refreshes.push_back(std::move(done));
  }
  void GetPlacement(v1::GetPlacementRequest, absl::Duration,
                    Done<v1::GetPlacementResponse> done) override {
    placements.push_back(std::move(done));
  }
  void Drain(v1::DrainRequest, absl::Duration, Done<v1::DrainResponse> done) override {
    drains.push_back(std::move(done));
  }
  void Watch(std::function<void(const worker::v1::WatchResponse&)> on_state,
             std::function<void(absl::Status)>) override {
    on_state_ = std::move(on_state);
  }

  void SayState() {
    worker::v1::WatchResponse response;
    response.set_worker_id(name_);
    response.set_state(worker::v1::SERVING);
    on_state_(response);
  }
  // Accepts the latest change.
  void Accept() {
    v1::SetOffloadResponse response;
    v1::WorkerOffload* worker = response.add_workers();
    worker->set_worker_id(name_);
    worker->mutable_settings()->set_policy(sets.back().first.policy());
    sets.back().second(std::move(response));
  }

  std::vector<std::pair<v1::SetOffloadRequest, Done<v1::SetOffloadResponse>>> sets;
  std::vector<Done<v1::RefreshExpertsResponse>> refreshes;
  std::vector<Done<v1::GetPlacementResponse>> placements;
  std::vector<Done<v1::DrainResponse>> drains;
  absl::Duration last_deadline;

 private:
  const std::string name_;
  const std::string address_;
  std::function<void(const worker::v1::WatchResponse&)> on_state_;
};

class FrontAdminTest : public testing::Test {
 protected:
  FrontAdminTest() {
    for (const char* name : {"a", "b"}) {
      auto link = std::make_unique<AdminLink>(name);
      links_.push_back(link.get());
      workers_.Add(std::move(link));
    }
    for (AdminLink* link : links_) link->SayState();
  }

  void Set(std::optional<std::string> worker = std::nullopt,
           absl::Duration deadline = absl::InfiniteDuration()) {
    v1::SetOffloadRequest request;
    if (worker.has_value()) request.set_worker_id(*worker);
    request.set_policy("lru");
    admin_.SetOffload(request, deadline, [this](absl::StatusOr<v1::SetOffloadResponse> answer) {
      EXPECT_FALSE(answer_.has_value()) << "answered twice";
      answer_ = std::move(answer);
    });
  }

  fakes::ManualClock clock_;
  WorkerSet workers_{&clock_, [](LogLevel, absl::string_view) {}};
  FrontAdmin admin_{&clock_, &workers_};
  std::vector<AdminLink*> links_;
  std::optional<absl::StatusOr<v1::SetOffloadResponse>> answer_;
};

TEST_F(FrontAdminTest, AsksEveryWorkerAndWaitsForTheLast) {
  Set();
  ASSERT_EQ(links_[0]->sets.size(), 1u);
  ASSERT_EQ(links_[1]->sets.size(), 1u);
  EXPECT_EQ(links_[0]->sets[0].first.policy(), "lru");
  links_[1]->Accept();
  EXPECT_FALSE(answer_.has_value());
  links_[0]->Accept();
  ASSERT_TRUE(answer_->ok());
  const v1::SetOffloadResponse& response = **answer_;
  ASSERT_EQ(response.workers_size(), 2);
  EXPECT_EQ(response.workers(0).worker_id(), "a");
  EXPECT_EQ(response.workers(0).address(), "a:1");
  EXPECT_EQ(response.workers(1).settings().policy(), "lru");
}

TEST_F(FrontAdminTest, BusyWorkersAreReportedWithARetryHint) {
  Set();
  for (AdminLink* link : links_) {
    link->sets[0].second(
        base::WithRetryAfter(absl::ResourceExhaustedError("64 calls wait"), absl::Seconds(2)));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(answer_->status()));
  EXPECT_EQ(base::RetryAfterOf(answer_->status()), absl::Seconds(2));
}

TEST_F(FrontAdminTest, AnErrorThatNoRetryHelpsHasNoHint) {
  Set();
  for (AdminLink* link : links_) {
    link->sets[0].second(absl::ResourceExhaustedError("needs 1 GiB more; accepted: up to 2 GiB"));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(answer_->status()));
  EXPECT_EQ(base::RetryAfterOf(answer_->status()), std::nullopt);
}

TEST_F(FrontAdminTest, AsksTheOneThatIsNamed) {
  Set("b");
  EXPECT_TRUE(links_[0]->sets.empty());
  ASSERT_EQ(links_[1]->sets.size(), 1u);
  EXPECT_FALSE(links_[1]->sets[0].first.has_worker_id());
  links_[1]->sets[0].second(absl::InvalidArgumentError("worker 'b': refresh_interval is 0"));
  EXPECT_EQ(answer_->status(), absl::InvalidArgumentError("worker 'b': refresh_interval is 0"));
  answer_.reset();
  Set("c");
  EXPECT_TRUE(absl::IsNotFound(answer_->status()));
  EXPECT_THAT(std::string(answer_->status().message()), HasSubstr("'c'"));
}

TEST_F(FrontAdminTest, OneFailureIsListedAllAreTheCallsOwn) {
  Set();
  links_[0]->sets[0].second(absl::UnavailableError("connection reset"));
  links_[1]->Accept();
  ASSERT_TRUE(answer_->ok());
  EXPECT_EQ((*answer_)->workers(0).worker_id(), "a");
  EXPECT_EQ((*answer_)->workers(0).status_code(), 14);
  EXPECT_EQ((*answer_)->workers(0).status_message(), "connection reset");
  EXPECT_FALSE((*answer_)->workers(0).has_settings());
  EXPECT_EQ((*answer_)->workers(1).status_code(), 0);
  answer_.reset();
  Set();
  links_[1]->sets[1].second(absl::FailedPreconditionError("worker 'b': no experts"));
  links_[0]->sets[1].second(absl::UnavailableError("connection reset"));
  // The error contains the worker's name, which the front has added.
  EXPECT_EQ(answer_->status(), absl::UnavailableError("worker 'a': connection reset"));
}

TEST_F(FrontAdminTest, CallsToWorkersHaveADeadline) {
  Set("a");
  EXPECT_EQ(links_[0]->last_deadline, clock_.Monotonic() + absl::Seconds(30));
  links_[0]->Accept();
  answer_.reset();
  Set("a", clock_.Monotonic() + absl::Seconds(2));
  EXPECT_EQ(links_[0]->last_deadline, clock_.Monotonic() + absl::Seconds(2));
}

// If the front's own limit passes, the caller must not get DEADLINE_EXCEEDED.
TEST_F(FrontAdminTest, AWorkerThatTakesLongerThanTheFrontWaitsIsUnavailable) {
  Set("a");
  links_[0]->sets[0].second(absl::DeadlineExceededError("Deadline Exceeded"));
  EXPECT_TRUE(absl::IsUnavailable(answer_->status()));
  EXPECT_THAT(
      std::string(answer_->status().message()),
      AllOf(HasSubstr("worker 'a': no response within 30s"), HasSubstr("may still be made")));
  answer_.reset();
  Set("a", clock_.Monotonic() + absl::Seconds(2));
  links_[0]->sets[1].second(absl::DeadlineExceededError("Deadline Exceeded"));
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer_->status()));
}

TEST_F(FrontAdminTest, PlacementsAreListedWithTheirFailures) {
  std::optional<absl::StatusOr<v1::GetPlacementResponse>> answer;
  admin_.GetPlacement({}, absl::InfiniteDuration(),
                      [&](absl::StatusOr<v1::GetPlacementResponse> result) { answer = result; });
  links_[0]->placements[0](absl::FailedPreconditionError("worker 'a': no experts"));
  links_[1]->placements[0](absl::DeadlineExceededError("late"));
  ASSERT_TRUE(answer.has_value() && answer->ok());
  EXPECT_EQ((*answer)->workers(0).status_code(), 9);
  EXPECT_EQ((*answer)->workers(1).status_code(), 14);
}

TEST_F(FrontAdminTest, RefreshFailsAsChangesDo) {
  std::optional<absl::StatusOr<v1::RefreshExpertsResponse>> answer;
  v1::RefreshExpertsRequest request;
  request.set_worker_id("a");
  admin_.RefreshExperts(
      request, absl::InfiniteDuration(),
      [&](absl::StatusOr<v1::RefreshExpertsResponse> result) { answer = result; });
  links_[0]->refreshes[0](absl::FailedPreconditionError("worker 'a': no experts"));
  EXPECT_TRUE(absl::IsFailedPrecondition(answer->status()));
}

TEST_F(FrontAdminTest, ADrainReportsEachWorker) {
  std::optional<absl::StatusOr<v1::DrainResponse>> answer;
  admin_.Drain({}, absl::InfiniteDuration(),
               [&](absl::StatusOr<v1::DrainResponse> result) { answer = std::move(result); });
  v1::DrainResponse drains;
  drains.add_workers()->set_worker_id("a");
  links_[0]->drains.at(0)(drains);
  EXPECT_FALSE(answer.has_value());
  links_[1]->drains.at(0)(absl::UnavailableError("gone"));
  ASSERT_TRUE(answer.has_value() && answer->ok());
  ASSERT_EQ((*answer)->workers_size(), 2);
  EXPECT_EQ((*answer)->workers(0).status_code(), 0);
  EXPECT_EQ((*answer)->workers(0).address(), "a:1");
  EXPECT_EQ((*answer)->workers(1).worker_id(), "b");
  EXPECT_EQ((*answer)->workers(1).status_message(), "gone");

  v1::DrainRequest other;
  other.set_worker_id("c");
  admin_.Drain(other, absl::InfiniteDuration(),
               [&](absl::StatusOr<v1::DrainResponse> result) { answer = std::move(result); });
  EXPECT_TRUE(absl::IsNotFound(answer->status()));
}

}  // namespace
}  // namespace tidepool::service
