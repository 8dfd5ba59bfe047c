#include "moe/read_queue.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "moe/expert_record.h"
#include "tests/moe/manual_reader.h"

namespace tidepool::moe {
namespace {

using Wait = ReadQueue::Wait;

constexpr int64_t kBytes = 4096;
constexpr absl::Duration kPatience = absl::Seconds(30);

// Four records; ticket i reads record i.
class ReadQueueTest : public testing::Test {
 protected:
  ReadQueueTest() : file_(4 * kBytes, std::byte{7}), into_(4 * kBytes) {
    auto reader = std::make_unique<ManualReader>(&file_);
    reader_ = reader.get();
    reads_ = std::make_unique<ReadQueue>(std::move(reader),
                                         ReadQueueOptions{.patience = kPatience, .clock = &clock_});
  }

  void Begin(int64_t ticket, ReadPriority priority = ReadPriority::kDemand) {
    reads_->Begin({.ticket = ticket,
                   .offset = ticket * kBytes,
                   .bytes = kBytes,
                   .into = into_.data() + ticket * kBytes,
                   .hash = RecordHash(file_.data(), kBytes)},
                  priority);
  }
  std::vector<int64_t> Arrived() {
    std::vector<int64_t> tickets;
    for (const ReadQueue::Arrival& arrival : reads_->TakeArrivals()) {
      EXPECT_TRUE(arrival.status.ok()) << arrival.status;
      tickets.push_back(arrival.read.ticket);
    }
    return tickets;
  }

  std::vector<std::byte> file_;
  std::vector<std::byte> into_;
  SteppingClock clock_{kPatience};
  ManualReader* reader_;
  std::unique_ptr<ReadQueue> reads_;
};

TEST_F(ReadQueueTest, ReturnsEndedReadsInTheOrderOfTheirEnd) {
  Begin(0);
  Begin(1);
  Begin(2);
  EXPECT_TRUE(Arrived().empty());
  reader_->End(2);
  reader_->End(0);
  EXPECT_EQ(reads_->Await(), Wait::kArrived);
  EXPECT_EQ(Arrived(), (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(reads_->AwaitAll(absl::ZeroDuration()), 1);
  reader_->End(1);
  EXPECT_EQ(Arrived(), std::vector<int64_t>{1});
  EXPECT_EQ(reads_->AwaitAll(absl::ZeroDuration()), 0);
  EXPECT_EQ(reads_->Await(), Wait::kNothing);
}

TEST_F(ReadQueueTest, WrongBytesAreDataLoss) {
  Begin(1);
  file_[kBytes + 5] ^= std::byte{1};
  reader_->End(1);
  const std::vector<ReadQueue::Arrival> arrivals = reads_->TakeArrivals();
  ASSERT_EQ(arrivals.size(), 1);
  EXPECT_TRUE(absl::IsDataLoss(arrivals[0].status)) << arrivals[0].status;
}

TEST_F(ReadQueueTest, KeepsTheErrorOfAFailedRead) {
  Begin(1);
  reader_->End(1, absl::UnavailableError("no disk"));
  const std::vector<ReadQueue::Arrival> arrivals = reads_->TakeArrivals();
  ASSERT_EQ(arrivals.size(), 1);
  EXPECT_EQ(arrivals[0].status, absl::UnavailableError("no disk"));
}

TEST_F(ReadQueueTest, ReadsInFlightAreLateAfterATimeout) {
  Begin(0);
  Begin(1);
  EXPECT_EQ(reads_->late(), 0);
  EXPECT_EQ(reads_->Await(), Wait::kTimedOut);
  EXPECT_EQ(reads_->late(), 2);
  EXPECT_TRUE(reads_->IsLate(0));
  EXPECT_FALSE(reads_->IsLate(2));
  // Late reads are not waited for. Other reads get less time until one ends.
  EXPECT_EQ(reads_->Await(), Wait::kNothing);
  EXPECT_EQ(reads_->patience(), kPatience / 10);
  Begin(2);
  EXPECT_EQ(reads_->Await(), Wait::kTimedOut);
  EXPECT_EQ(reads_->late(), 3);
  reader_->End(1);
  EXPECT_EQ(Arrived(), std::vector<int64_t>{1});
  EXPECT_EQ(reads_->late(), 2);
  EXPECT_EQ(reads_->patience(), kPatience);
}

TEST_F(ReadQueueTest, WithdrawTakesBackSpeculativeReads) {
  Begin(0);
  Begin(1, ReadPriority::kSpeculative);
  EXPECT_EQ(reads_->Await(), Wait::kTimedOut);
  const std::vector<RecordRead> withdrawn = reads_->Withdraw();
  ASSERT_EQ(withdrawn.size(), 1);
  EXPECT_EQ(withdrawn[0].ticket, 1);
  EXPECT_EQ(reads_->late(), 1);
  EXPECT_EQ(reads_->AwaitAll(absl::ZeroDuration()), 1);
  Begin(1);  // may be read again
  reader_->End(0);
  reader_->End(1);
  EXPECT_EQ(Arrived(), (std::vector<int64_t>{0, 1}));
}

TEST_F(ReadQueueTest, TimeIsBusyWhileAReadIsInFlight) {
  EXPECT_EQ(reads_->BusyTime(), absl::ZeroDuration());
  Begin(0);  // reads the clock at the start, and when the last read ends
  Begin(1);
  reader_->End(0);
  reader_->End(1);
  EXPECT_EQ(reads_->BusyTime(), kPatience);
  Begin(2);
  EXPECT_EQ(reads_->BusyTime(), 2 * kPatience);
  reader_->End(2);
  reads_->ResetBusyTime();
  EXPECT_EQ(reads_->BusyTime(), absl::ZeroDuration());
}

}  // namespace
}  // namespace tidepool::moe
