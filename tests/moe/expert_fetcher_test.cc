#include "moe/expert_fetcher.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/moe/manual_reader.h"
#include "tests/moe/tiered_rig.h"

namespace tidepool::moe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Seconds(30);

// Twelve slots: experts 0 to 3 of each layer have one. Three more buffers are for other experts.
class ExpertFetcherTest : public testing::Test {
 protected:
  ExpertFetcherTest() {
    const PoolShape shape = {
        .layers = kLayers, .experts = kExperts, .top_k = kTopK, .slots = int64_t{kLayers} * 4};
    std::vector<int64_t> profile(kAll);
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int expert = 0; expert < 4; ++expert) profile[layer * kExperts + expert] = 100;
    }
    placement_ = *Placement::Create(shape, {.kind = PolicyKind::kStatic, .profile = profile});
    auto reader = std::make_unique<ManualReader>(&master_.bytes());
    reader_ = reader.get();
    const auto buffers = static_cast<int32_t>(shape.slots + kStaging);
    fetcher_ = std::make_unique<ExpertFetcher>(
        ExpertFetcher::Parts{.records = &master_.records(),
                             .placement = placement_.get(),
                             .reader = std::move(reader)},
        *ExpertPool::Create(master_.records().largest_bytes(), buffers, buffers),
        FetchOptions{.prefetch_buffers = 1,
                     .layer_numbers = {1, 2, 5},
                     .read_patience = kPatience,
                     .clock = &clock_});
  }

  // The experts of layer 0 that are ready now.
  std::vector<int32_t> Ready(Patience patience = Patience::kNone) {
    std::vector<int32_t> experts;
    const auto wave = fetcher_->NextReady(patience);
    EXPECT_TRUE(wave.ok()) << wave.status();
    if (!wave.ok()) return experts;
    for (const ReadyExpert& ready : *wave) {
      EXPECT_TRUE(master_.Matches(0, ready));
      experts.push_back(ready.expert);
    }
    return experts;
  }
  int64_t InFlight() const { return static_cast<int64_t>(reader_->reads().size()); }

  const Master master_;
  SteppingClock clock_{kPatience};
  std::unique_ptr<Placement> placement_;
  ManualReader* reader_;
  std::unique_ptr<ExpertFetcher> fetcher_;
};

TEST_F(ExpertFetcherTest, ReturnsExpertsAsTheyArrive) {
  fetcher_->Begin(0, {1, 2, 9});
  EXPECT_EQ(InFlight(), 3);
  EXPECT_THAT(Ready(), IsEmpty());
  reader_->End(9);
  reader_->End(1);
  EXPECT_THAT(Ready(Patience::kUntilOne), ElementsAre(9, 1));
  fetcher_->Release(9);
  EXPECT_TRUE(fetcher_->buffers().IsAbsent(9));  // expert 9 was used once and dropped
  fetcher_->Release(1);
  EXPECT_TRUE(fetcher_->buffers().IsReady(1));  // expert 1 is resident
  reader_->End(2);
  EXPECT_THAT(Ready(), ElementsAre(2));
  fetcher_->Release(2);
  EXPECT_TRUE(fetcher_->request().done());
  EXPECT_EQ(fetcher_->counters().demand_reads, 3);
  fetcher_->Begin(0, {1});
  EXPECT_THAT(Ready(), ElementsAre(1));
}

TEST_F(ExpertFetcherTest, ReadsMoreWhenABufferIsReleased) {
  // Fifteen buffers, twelve experts of one layer, and three of another that are held by reads.
  fetcher_->Begin(1, {4, 5, 6, 7});
  fetcher_->request().Fail(absl::UnavailableError("as if one had failed"));
  EXPECT_FALSE(fetcher_->NextReady(Patience::kNone).ok());
  fetcher_->Begin(0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  EXPECT_EQ(InFlight(), 15);
  EXPECT_EQ(fetcher_->request().waiting().size(), 1);
  reader_->End(4);
  EXPECT_THAT(Ready(), ElementsAre(4));
  EXPECT_EQ(InFlight(), 14);
  fetcher_->Release(4);  // frees a buffer for the last expert
  EXPECT_EQ(InFlight(), 15);
  EXPECT_FALSE(fetcher_->request().has_waiting());
  for (const int64_t expert : {0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11}) reader_->End(expert);
  EXPECT_EQ(Ready().size(), 11);
  for (int expert = 0; expert < kExperts; ++expert) {
    if (expert != 4) fetcher_->Release(expert);
  }
  EXPECT_TRUE(fetcher_->request().done());
}

TEST_F(ExpertFetcherTest, AFailedReadEndsTheRequestAndFreesItsSlot) {
  fetcher_->Begin(0, {1, 2});
  reader_->End(2, absl::UnavailableError("cannot be read"));
  const absl::Status status = fetcher_->NextReady(Patience::kUntilOne).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("model.tidepack: layer 1, expert 2 cannot be read"));
  EXPECT_FALSE(placement_->residency().IsResident({0, 2}));
  EXPECT_TRUE(placement_->residency().IsResident({0, 1}));
  EXPECT_TRUE(fetcher_->request().done());
  reader_->End(1);  // arrives later, and stays
  fetcher_->Begin(0, {1});
  EXPECT_THAT(Ready(), ElementsAre(1));
}

TEST_F(ExpertFetcherTest, LateReadsFailOnlyTheirRequests) {
  fetcher_->Begin(0, {1, 2});
  reader_->End(2);
  EXPECT_THAT(Ready(), ElementsAre(2));
  EXPECT_TRUE(absl::IsUnavailable(fetcher_->NextReady(Patience::kUntilOne).status()));
  fetcher_->Begin(0, {1});
  EXPECT_TRUE(fetcher_->request().failed());
  EXPECT_TRUE(absl::IsUnavailable(fetcher_->NextReady(Patience::kNone).status()));
  fetcher_->Begin(0, {2, 3});
  EXPECT_FALSE(fetcher_->request().failed());
  EXPECT_THAT(Ready(), ElementsAre(2));
  reader_->End(3);
  EXPECT_THAT(Ready(Patience::kUntilOne), ElementsAre(3));
}

TEST_F(ExpertFetcherTest, DemandReadsReplaceHints) {
  fetcher_->PrefetchHint(1, {8});
  EXPECT_EQ(InFlight(), 1);
  EXPECT_EQ(reader_->reads()[0].priority, ReadPriority::kSpeculative);
  fetcher_->Begin(0, {8});
  EXPECT_EQ(InFlight(), 1);  // the hint's read had not begun, so it was withdrawn
  EXPECT_EQ(reader_->reads()[0].read.ticket, 8);
  EXPECT_EQ(fetcher_->counters().prefetch.bytes, 0);
}

TEST_F(ExpertFetcherTest, LoadResidentsSkipsExpertsThatDoNotArrive) {
  fetcher_->LoadResidents({});  // nothing ends: the clock moves on
  EXPECT_EQ(InFlight(), 12);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int expert = 0; expert < 4; ++expert) reader_->End(layer * kExperts + expert);
  }
  EXPECT_EQ(fetcher_->AwaitAllReads(absl::ZeroDuration()), 0);
  EXPECT_TRUE(fetcher_->buffers().IsReady(0));
}

}  // namespace
}  // namespace tidepool::moe
