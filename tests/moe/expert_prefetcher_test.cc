#include "moe/expert_prefetcher.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/moe/manual_reader.h"
#include "tests/moe/tiered_rig.h"

namespace tidepool::moe {
namespace {

constexpr int32_t kBuffers = 3;
constexpr int kLimit = 2;

class ExpertPrefetcherTest : public testing::Test {
 protected:
  ExpertPrefetcherTest()
      : record_(master_.records().largest_bytes()),
        buffers_(&master_.records(), *ExpertPool::Create(record_, kBuffers, kBuffers)) {
    auto reader = std::make_unique<ManualReader>(&master_.bytes());
    reader_ = reader.get();
    reads_ = std::make_unique<ReadQueue>(std::move(reader), ReadQueueOptions{});
    prefetcher_ = std::make_unique<ExpertPrefetcher>(&buffers_, reads_.get(),
                                                     ExpertPrefetcher::Options{.limit = kLimit});
  }

  std::vector<int64_t> InFlight() const {
    std::vector<int64_t> experts;
    for (const ManualReader::Begun& begun : reader_->reads()) experts.push_back(begun.read.ticket);
    return experts;
  }
  void Arrive(int64_t expert) {
    reader_->End(expert);
    for (const ReadQueue::Arrival& arrival : reads_->TakeArrivals()) {
      buffers_.EndRead(arrival.read.ticket);
    }
  }
  // A layer requests the expert.
  void Use(int64_t expert) {
    buffers_.Hold(expert, Holder::kRequest);
    prefetcher_->UseIfHinted(expert);
  }
  PrefetchCounters Records() const {
    PrefetchCounters counters = prefetcher_->counters();
    return {counters.bytes / record_, counters.used_bytes / record_,
            counters.wasted_bytes / record_};
  }

  const Master master_;
  const int64_t record_;
  ExpertBuffers buffers_;
  ManualReader* reader_;
  std::unique_ptr<ReadQueue> reads_;
  std::unique_ptr<ExpertPrefetcher> prefetcher_;
};

TEST_F(ExpertPrefetcherTest, ReadsTheFirstHintsUpToItsLimit) {
  prefetcher_->Hint({5, 5, 6, 7});
  EXPECT_EQ(InFlight(), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(Records().bytes, 2);
  prefetcher_->Hint({7});
  EXPECT_EQ(InFlight().size(), 2);
}

TEST_F(ExpertPrefetcherTest, LeavesBuffersInUseAlone) {
  for (int64_t expert = 20; expert < 22; ++expert) buffers_.BeginRead(expert, buffers_.Take());
  prefetcher_->Hint({5, 6});
  EXPECT_EQ(InFlight(), std::vector<int64_t>{5});
}

TEST_F(ExpertPrefetcherTest, ARequestedExpertCountsAsUsed) {
  prefetcher_->Hint({5, 6});
  Arrive(5);
  Use(5);
  Use(6);  // while expert 6 is being read
  EXPECT_EQ(Records().used_bytes, 2);
  EXPECT_EQ(Records().wasted_bytes, 0);
  EXPECT_TRUE(buffers_.IsReady(5));
  prefetcher_->Hint({7});  // there is a free buffer again
  EXPECT_EQ(InFlight(), (std::vector<int64_t>{6, 7}));
  Use(8);  // not hinted
  EXPECT_EQ(Records().used_bytes, 2);
}

TEST_F(ExpertPrefetcherTest, DropsExpertsThatTheLayerDidNotRequest) {
  prefetcher_->Hint({5, kExperts + 5});
  Arrive(5);
  prefetcher_->DropRange(0, kExperts);
  EXPECT_TRUE(buffers_.IsAbsent(5));
  EXPECT_EQ(Records().wasted_bytes, 1);
  EXPECT_TRUE(buffers_.IsHeld(kExperts + 5, Holder::kPrefetch));
}

TEST_F(ExpertPrefetcherTest, DropsTheOldestThatHasArrived) {
  prefetcher_->Hint({5, 6});
  EXPECT_FALSE(prefetcher_->DropOldest());
  Arrive(6);
  EXPECT_TRUE(prefetcher_->DropOldest());
  EXPECT_TRUE(buffers_.IsAbsent(6));
  EXPECT_FALSE(buffers_.IsAbsent(5));
  EXPECT_EQ(Records().wasted_bytes, 1);
}

TEST_F(ExpertPrefetcherTest, WithdrawnReadsDoNotCount) {
  prefetcher_->Hint({5, 6});
  Arrive(5);
  prefetcher_->Withdraw();
  EXPECT_TRUE(InFlight().empty());
  EXPECT_TRUE(buffers_.IsAbsent(6));
  EXPECT_TRUE(buffers_.IsReady(5));
  EXPECT_EQ(Records().bytes, 1);
  EXPECT_EQ(Records().wasted_bytes, 0);
}

TEST_F(ExpertPrefetcherTest, WantsNoHintsWhenOffOrAfterWaste) {
  EXPECT_TRUE(prefetcher_->WantsHints());
  prefetcher_->set_prefetch(Prefetch::kOff);
  EXPECT_FALSE(prefetcher_->WantsHints());
  prefetcher_->Hint({5});
  EXPECT_TRUE(InFlight().empty());
  prefetcher_->set_prefetch(Prefetch::kOn);
  prefetcher_->Hint({5});
  prefetcher_->DropIfHinted(5);
  EXPECT_FALSE(prefetcher_->WantsHints());  // all prefetched bytes were wasted
  prefetcher_->NoteDemand(100 * record_);
  EXPECT_TRUE(prefetcher_->WantsHints());
}

}  // namespace
}  // namespace tidepool::moe
