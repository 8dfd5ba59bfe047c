// StatsWatch with an executor and a client that the test controls.
#include "service/base/stats_watch.h"

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"
#include "tests/service/base/manual_executor.h"

namespace tidepool::service {
namespace {

using ::testing::HasSubstr;

class Reader final : public StatsWatchSink {
 public:
  void Write(v1::GetStatsResponse stats) override {
    EXPECT_FALSE(writing) << "two writes at once";
    EXPECT_FALSE(end.has_value());
    writing = true;
    read.push_back(stats.front().requests_total());
  }
  void Finish(absl::Status status) override {
    EXPECT_FALSE(end.has_value()) << "finished twice";
    end = std::move(status);
  }
  void Take() {
    ASSERT_TRUE(writing);
    writing = false;
    watch->OnWritten();
  }

  std::shared_ptr<StatsWatch> watch;
  std::vector<int64_t> read;
  bool writing = false;
  std::optional<absl::Status> end;
};

class StatsWatchTest : public testing::Test {
 protected:
  void Start(Reader* reader, const v1::WatchStatsRequest& request) {
    reader->watch = watches_.Start(&loop_, reader, request, [this](Answer answer) {
      ++asked_;
      answers_.push_back(std::move(answer));
      if (at_once_) AnswerOne();
    });
  }
  static v1::WatchStatsRequest Every(double seconds) {
    v1::WatchStatsRequest request;
    request.set_interval_seconds(seconds);
    return request;
  }
  // Responds to one request, with the number of requests until now.
  void AnswerOne() {
    v1::GetStatsResponse stats;
    stats.mutable_front()->set_requests_total(asked_);
    const Answer answer = std::move(answers_.front());
    answers_.erase(answers_.begin());
    answer(std::move(stats));
  }

  using Answer = std::function<void(absl::StatusOr<v1::GetStatsResponse>)>;
  fakes::ManualClock clock_;
  ManualExecutor loop_{&clock_};
  StatsWatches watches_;
  bool at_once_ = true;
  int64_t asked_ = 0;
  std::vector<Answer> answers_;
};

TEST_F(StatsWatchTest, TheFirstComesAtOnceThenOneAnInterval) {
  Reader reader;
  Start(&reader, {});
  EXPECT_EQ(reader.read, (std::vector<int64_t>{1}));
  reader.Take();
  loop_.Advance(absl::Milliseconds(999));
  EXPECT_EQ(reader.read.size(), 1u);
  for (int64_t i = 2; i < 6; ++i) {
    loop_.Advance(absl::Seconds(1));
    ASSERT_EQ(reader.read.size(), static_cast<size_t>(i));
    EXPECT_EQ(reader.read.back(), i);
    reader.Take();
  }
  reader.watch->Cancel();
  EXPECT_TRUE(absl::IsCancelled(*reader.end));
  loop_.Advance(absl::Seconds(10));
  EXPECT_EQ(asked_, 5);
}

// A reader may take any time. When it is ready again, it gets stats that are read then, not older
// ones.
TEST_F(StatsWatchTest, ASlowReaderGetsTheNewest) {
  Reader reader;
  Start(&reader, Every(0.1));
  loop_.Advance(absl::Seconds(60));
  EXPECT_EQ(asked_, 1);
  reader.Take();
  EXPECT_EQ(asked_, 2);
  EXPECT_EQ(reader.read, (std::vector<int64_t>{1, 2}));
  reader.Take();
  EXPECT_EQ(asked_, 2);
  loop_.Advance(absl::Milliseconds(100));
  EXPECT_EQ(asked_, 3);
}

TEST_F(StatsWatchTest, ASlowSourceIsNotAskedTwice) {
  at_once_ = false;
  Reader reader;
  Start(&reader, Every(0.5));
  loop_.Advance(absl::Seconds(5));
  EXPECT_EQ(asked_, 1);
  AnswerOne();
  reader.Take();
  EXPECT_EQ(asked_, 2);  // the next reading was already due
}

TEST_F(StatsWatchTest, EndsAfterItsCount) {
  Reader reader;
  v1::WatchStatsRequest request = Every(1);
  request.set_count(2);
  Start(&reader, request);
  reader.Take();
  EXPECT_FALSE(reader.end.has_value());
  loop_.Advance(absl::Seconds(1));
  EXPECT_FALSE(reader.end.has_value());
  reader.Take();
  EXPECT_TRUE(reader.end->ok());
}

TEST_F(StatsWatchTest, RefusesFieldsOutOfRange) {
  for (const double seconds : {0.0, 0.09, -1.0, 3601.0, std::nan("")}) {
    Reader reader;
    Start(&reader, Every(seconds));
    EXPECT_TRUE(absl::IsInvalidArgument(*reader.end));
    EXPECT_THAT(std::string(reader.end->message()), HasSubstr("accepted: 0.1 to 3600"));
  }
  Reader reader;
  v1::WatchStatsRequest request;
  request.set_count(0);
  Start(&reader, request);
  EXPECT_THAT(std::string(reader.end->message()), HasSubstr("count is 0; accepted: 1 or more"));
  EXPECT_EQ(asked_, 0);
}

TEST_F(StatsWatchTest, AnErrorOfTheSourceEndsIt) {
  at_once_ = false;
  Reader reader;
  Start(&reader, {});
  answers_[0](absl::NotFoundError("no worker has the id 'x'"));
  EXPECT_TRUE(absl::IsNotFound(*reader.end));
}

// A reading that is being sent arrives before the end. Watches that start later are refused.
TEST_F(StatsWatchTest, ClosingEndsAll) {
  Reader idle, busy, late;
  Start(&idle, {});
  idle.Take();
  Start(&busy, {});
  watches_.Close(absl::UnavailableError("the server is shutting down"));
  EXPECT_TRUE(absl::IsUnavailable(*idle.end));
  EXPECT_FALSE(busy.end.has_value());
  busy.Take();
  EXPECT_TRUE(absl::IsUnavailable(*busy.end));
  Start(&late, {});
  EXPECT_EQ(late.watch, nullptr);
  EXPECT_TRUE(absl::IsUnavailable(*late.end));
  EXPECT_TRUE(late.read.empty());
}

TEST_F(StatsWatchTest, AResponseAfterTheEndIsDropped) {
  at_once_ = false;
  Reader reader;
  Start(&reader, {});
  reader.watch->Abandon();
  AnswerOne();
  EXPECT_TRUE(reader.read.empty());
  Reader gone;
  Start(&gone, {});
  gone.watch.reset();
  AnswerOne();
  EXPECT_TRUE(gone.read.empty());
}

}  // namespace
}  // namespace tidepool::service
