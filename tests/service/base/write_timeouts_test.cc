#include "service/base/write_timeouts.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/fakes/manual_clock.h"
#include "tests/service/base/manual_executor.h"

namespace tidepool::service {
namespace {

class WriteTimeoutsTest : public testing::Test {
 protected:
  WriteTimeouts::Write Begin(int number) {
    return writes_->Begin([this, number] { late_.push_back(number); });
  }

  fakes::ManualClock clock_;
  ManualExecutor loop_{&clock_};
  std::optional<WriteTimeouts> writes_{std::in_place, &loop_, &clock_, kTakenWithin};
  std::vector<int> late_;
};

TEST_F(WriteTimeoutsTest, OneIsLateOnceAtTheLimit) {
  const auto write = Begin(1);
  loop_.Advance(absl::Minutes(10) - absl::Milliseconds(1));
  EXPECT_TRUE(late_.empty());
  loop_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(late_, std::vector<int>{1});
  loop_.Advance(absl::Hours(1));
  EXPECT_EQ(late_, std::vector<int>{1});
}

// A stream without output has no pending write, so it is never late. The stream of a slow reader
// begins a new write each time.
TEST_F(WriteTimeoutsTest, AFinishedWriteIsNotLate) {
  auto write = Begin(1);
  for (int i = 2; i < 10; ++i) {
    loop_.Advance(absl::Minutes(9));
    write = Begin(i);
  }
  write.Reset();
  EXPECT_FALSE(write.pending());
  loop_.Advance(absl::Hours(24));
  EXPECT_TRUE(late_.empty());
  write = Begin(10);
  loop_.Advance(absl::Minutes(10));
  EXPECT_EQ(late_, std::vector<int>{10});
}

TEST_F(WriteTimeoutsTest, EachHasItsOwnTime) {
  const auto first = Begin(1);
  loop_.Advance(absl::Minutes(1));
  auto second = Begin(2);
  loop_.Advance(absl::Minutes(1));
  const auto third = Begin(3);
  second.Reset();
  loop_.Advance(absl::Minutes(8));
  EXPECT_EQ(late_, std::vector<int>{1});
  loop_.Advance(absl::Minutes(1));
  EXPECT_EQ(late_, std::vector<int>{1});
  loop_.Advance(absl::Minutes(1));
  EXPECT_EQ(late_, (std::vector<int>{1, 3}));
}

// When a write is late, its `on_late` may end other writes and begin a new one. For example, it
// ends the stream; then the last write of the stream has the full time.
TEST_F(WriteTimeoutsTest, OneThatIsLateMayBeginAnotherAndEndThem) {
  WriteTimeouts::Write write, other;
  write = writes_->Begin([&] {
    late_.push_back(1);
    other.Reset();
    write = Begin(3);
  });
  other = Begin(2);
  loop_.Advance(absl::Minutes(10));
  EXPECT_EQ(late_, std::vector<int>{1});
  loop_.Advance(absl::Minutes(10));
  EXPECT_EQ(late_, (std::vector<int>{1, 3}));
}

TEST_F(WriteTimeoutsTest, ACallbackMayBeginAWriteWithoutDelayingOthers) {
  WriteTimeouts::Write write;
  write = writes_->Begin([&] {
    late_.push_back(1);
    write = Begin(3);
  });
  loop_.Advance(absl::Minutes(1));
  const auto next = Begin(2);
  loop_.Advance(absl::Minutes(10));
  EXPECT_EQ(late_, (std::vector<int>{1, 2}));
}

TEST_F(WriteTimeoutsTest, AWriteMayOutliveItsFront) {
  auto write = Begin(1);
  writes_.reset();
  EXPECT_FALSE(write.pending());
  loop_.Advance(absl::Hours(1));
  write.Reset();
  EXPECT_TRUE(late_.empty());
}

}  // namespace
}  // namespace tidepool::service
