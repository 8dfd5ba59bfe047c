#include "engine/scheduler/deadline_judge.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/retry_after.h"
#include "tests/engine/scheduler/scheduler_fixture.h"

namespace tidepool::engine {
namespace {

class DeadlineJudgeTest : public SchedulerTest {
 protected:
  void SetUp() override { Start(100); }

  std::unique_ptr<Sequence> Make(const Job& job) {
    std::unique_ptr<Sequence> sequence = MakeSequence(job);
    sequence->has_credit = true;
    sequence->lease = cache_->NewLease("");
    return sequence;
  }
  absl::Status Judge(int64_t prompt, absl::Duration left, int64_t ahead) {
    return judge_.Judge(Make({.prompt = prompt}).get(), left, ahead);
  }

  DeadlineJudge judge_;
};

TEST_F(DeadlineJudgeTest, RefusesNothingWithoutRates) {
  EXPECT_TRUE(Judge(1000, absl::ZeroDuration(), 1000).ok());
}

TEST_F(DeadlineJudgeTest, APromptThatTakesTooLongIsDeadlineExceeded) {
  judge_.SetRates({.prompt_rows_per_second = 100});
  EXPECT_TRUE(Judge(100, absl::Milliseconds(500), 0).ok());  // half of the measured second
  EXPECT_TRUE(absl::IsDeadlineExceeded(Judge(100, absl::Milliseconds(499), 0)));
}

TEST_F(DeadlineJudgeTest, AQueueThatTakesTooLongIsResourceExhausted) {
  judge_.SetRates({.admissions_per_second = 2});
  EXPECT_TRUE(Judge(100, absl::Seconds(1), 4).ok());
  const absl::Status status = Judge(100, absl::Milliseconds(999), 4);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(base::RetryAfterOf(status), absl::Seconds(1));
}

TEST_F(DeadlineJudgeTest, JudgesEachSequenceOnce) {
  judge_.SetRates({.prompt_rows_per_second = 100});
  AdmissionQueue waiting;
  waiting.Add(Make({.name = "late", .prompt = 100, .deadline = absl::Milliseconds(300)}));
  waiting.Add(Make({.name = "early", .prompt = 100, .deadline = absl::Milliseconds(700)}));
  waiting.Add(Make({.name = "begun", .prompt = 9, .outputs = 1, .deadline = absl::Seconds(0)}));
  const std::vector<EndedSequence> refused = judge_.TakeRefused(absl::ZeroDuration(), &waiting);
  ASSERT_EQ(refused.size(), 1);
  EXPECT_EQ(names_[refused[0].sequence->arrival], "late");
  EXPECT_TRUE(absl::IsDeadlineExceeded(refused[0].status));
  EXPECT_EQ(judge_.refusals(), 1);
  EXPECT_EQ(judge_.looks(), 3);
  // An accepted sequence stays, even if it becomes late.
  EXPECT_TRUE(judge_.TakeRefused(absl::Seconds(10), &waiting).empty());
  EXPECT_EQ(judge_.looks(), 3);
  EXPECT_EQ(waiting.size(), 2);
}

}  // namespace
}  // namespace tidepool::engine
