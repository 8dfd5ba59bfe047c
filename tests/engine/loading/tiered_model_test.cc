// Models with experts in a pack file, compared with the same models with all experts in memory.
#include "engine/loading/tiered_model.h"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/gguf.h"
#include "engine/evaluation/logits.h"
#include "engine/loading/model_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "moe/device/device_experts.h"
#include "moe/replay/replay.h"
#include "moe/tiered_experts.h"
#include "moe/trace/trace.h"
#include "tests/engine/loading/tiered_fixture.h"
#include "tests/moe/tier_checks.h"
#include "tools/synthetic/checkpoint.h"
#include "tools/synthetic/shape.h"

namespace tidepool::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The cost of a miss in each layer, as the placement knows it. Requires: experts are offloaded.
std::vector<float> MissCost(const ModelBundle& bundle) {
  moe::OffloadControl* const control = bundle.model->offload_control();
  const auto cost_of = [](const auto* experts) { return experts->placement().shape().miss_cost; };
  return bundle.plan.on_device ? cost_of(static_cast<moe::DeviceExperts*>(control))
                               : cost_of(static_cast<moe::TieredExperts*>(control));
}

TEST_F(TieredModelTest, SameBitsForAnyBudgetPolicyReaderAndChunk) {
  const auto resident = MustLoad(model_, {});
  EXPECT_EQ(resident->model->offload_control(), nullptr);
  EXPECT_FALSE(std::filesystem::exists(pack_));
  const auto expected = Logits(resident.get(), 24);
  ASSERT_TRUE(expected.ok());
  // 3 layers of 16 experts: the floor is 12 records.
  for (const double share : {12.1 / 48, 0.4, 0.7, 1.0}) {
    for (const moe::PolicyKind policy :
         {moe::PolicyKind::kAdaptive, moe::PolicyKind::kLru, moe::PolicyKind::kTide}) {
      for (const moe::ReaderKind reader : {moe::ReaderKind::kAuto, moe::ReaderKind::kThreads}) {
        for (const moe::Prefetch prefetch : {moe::Prefetch::kOn, moe::Prefetch::kOff}) {
          ExpertOptions options = Share(share);
          options.policy.kind = policy;
          options.reader = reader;
          options.prefetch = prefetch;
          const auto bundle = MustLoad(model_, options, reader == moe::ReaderKind::kAuto ? 2 : 1);
          ASSERT_NE(bundle->model->offload_control(), nullptr);
          EXPECT_LT(bundle->weight_bytes, resident->weight_bytes / 2);
          for (const int chunk : {24, 5, 1}) {
            const auto logits = Logits(bundle.get(), chunk);
            ASSERT_TRUE(logits.ok()) << logits.status();
            ASSERT_EQ(*logits, *expected)
                << share << " " << moe::PolicyName(policy) << " " << chunk;
          }
          EXPECT_EQ(bundle->model->offload_stats()->failed_reads, 0);
        }
      }
    }
  }
}

// Runs the model and replays its trace: hits, misses and promotions must be equal.
void CheckCountsAsReplay(const std::string& model, const LoadOptions& load) {
  const ExpertOptions& options = load.experts;
  const auto bundle = LoadModel(model, load);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  for (const int chunk : {7, 1}) {
    const LogitsOptions passes = {.chunk_rows = chunk};
    const auto ignore = [](int64_t, absl::Span<const float>) { return absl::OkStatus(); };
    ASSERT_TRUE(ComputeLogits((*bundle)->model.get(), Tokens(24), passes, ignore).ok());
  }
  const moe::OffloadStats stats = *(*bundle)->model->offload_stats();
  ASSERT_TRUE((*bundle)->model->Finish().ok());
  const auto trace = moe::ReadTrace(options.trace_path);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const auto placement = moe::MakePlacement(
      *trace, stats.slots, {std::string(moe::PolicyName(options.policy.kind)), options.policy});
  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_EQ((*placement)->shape().miss_cost, MissCost(**bundle));
  const moe::ReplayResult replayed = moe::Replay(*trace, {}, placement->get());
  EXPECT_GT(stats.placement.misses(), 0);
  if ((*bundle)->plan.on_device) return moe::ExpectSameLookups(replayed, stats);
  EXPECT_TRUE(replayed.counters == stats.placement);
  if (options.prefetch == moe::Prefetch::kOff) {
    EXPECT_EQ(replayed.bytes_moved, stats.demand_bytes);
  }
}

// Tests records of one size and of different sizes.
TEST_F(TieredModelTest, CountsAsReplayDoes) {
  for (const std::string& model : {model_, WriteMixed()}) {
    for (const moe::PolicyKind policy : {moe::PolicyKind::kAdaptive, moe::PolicyKind::kLru,
                                         moe::PolicyKind::kTide, moe::PolicyKind::kStatic}) {
      for (const moe::Prefetch prefetch : {moe::Prefetch::kOff, moe::Prefetch::kOn}) {
        SCOPED_TRACE(absl::StrCat(model, " ", moe::PolicyName(policy)));
        ExpertOptions options = Share(0.6);
        options.policy = {.kind = policy, .refresh_interval = 2};
        options.prefetch = prefetch;
        options.trace_path = folder_ + "/run.jsonl.zst";
        CheckCountsAsReplay(model, OptionsFor(options));
      }
    }
  }
}

// A miss costs the record's bytes, and the last layer's records are larger.
TEST_F(TieredModelTest, KnowsTheCostOfAMissInEachLayer) {
  EXPECT_THAT(MissCost(*MustLoad(model_, Share(0.6))), IsEmpty());
  const auto costs = MissCost(*MustLoad(WriteMixed(), Share(0.6)));
  ASSERT_EQ(costs.size(), 3u);
  EXPECT_EQ(costs[0], costs[1]);
  EXPECT_GT(costs[2], 1.5f * costs[0]);
}

TEST_F(TieredModelTest, ATraceThatCannotBeWrittenIsAnError) {
  ExpertOptions options = Share(0.6);
  options.trace_path = "/dev/full";
  const auto bundle = MustLoad(model_, options);
  absl::Status status = Logits(bundle.get(), 24).status();
  status.Update(bundle->model->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot write the trace /dev/full"));
}

// While nothing runs, a reader of the trace sees everything so far.
TEST_F(TieredModelTest, ATraceIsWholeWhileNothingRuns) {
  ExpertOptions options = Share(0.6);
  options.trace_path = folder_ + "/run.jsonl";
  const auto bundle = MustLoad(model_, options);
  ASSERT_TRUE(Logits(bundle.get(), 1).ok());
  bundle->model->Idle();
  const auto trace = moe::ReadTrace(options.trace_path);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(
      moe::Replay(*trace, {}, moe::MakePlacement(*trace, 20, {"lru"})->get()).counters.lookups(),
      bundle->model->offload_stats()->placement.lookups());
}

TEST_F(TieredModelTest, ThePackIsMadeOnceAndAgainForAnotherCheckpoint) {
  MustLoad(model_, Share(0.5));
  struct stat first;
  ASSERT_EQ(stat(pack_.c_str(), &first), 0);
  MustLoad(model_, Share(0.3));
  struct stat second;
  ASSERT_EQ(stat(pack_.c_str(), &second), 0);
  EXPECT_EQ(first.st_ino, second.st_ino);

  CHECK_OK(tools::WriteSynthetic(
               *tools::FindShape("tiny-moe"), model_,
               {.type = GgmlType::kQ4_K, .seed = 10, .existing = base::ExistingFile::kReplace})
               .status());
  const auto expected = Logits(MustLoad(model_, {}).get(), 24);
  const auto logits = Logits(MustLoad(model_, Share(0.5)).get(), 24);
  ASSERT_TRUE(logits.ok());
  EXPECT_EQ(*logits, *expected);
  struct stat third;
  ASSERT_EQ(stat(pack_.c_str(), &third), 0);
  EXPECT_NE(third.st_ino, second.st_ino);
}

// An expert's weight that is changed in place is detected, even if the modification time is
// restored. A changed time alone has no effect.
TEST_F(TieredModelTest, ACheckpointThatWasWrittenToIsPackedAgain) {
  MustLoad(model_, Share(0.5));
  struct stat first;
  ASSERT_EQ(stat(pack_.c_str(), &first), 0);
  const auto time = std::filesystem::last_write_time(model_);
  std::filesystem::last_write_time(model_, time + std::chrono::nanoseconds(1500));
  MustLoad(model_, Share(0.5));
  struct stat second;
  ASSERT_EQ(stat(pack_.c_str(), &second), 0);
  EXPECT_EQ(first.st_ino, second.st_ino);

  FlipExperts();
  std::filesystem::last_write_time(model_, time);
  MustLoad(model_, Share(0.5));
  struct stat third;
  ASSERT_EQ(stat(pack_.c_str(), &third), 0);
  EXPECT_NE(second.st_ino, third.st_ino);
}

TEST_F(TieredModelTest, APackThatCannotBeWrittenNamesTheRemedy) {
  ExpertOptions options = Share(0.5);
  options.cache_dir = "/sys";  // not writable
  const absl::Status status = LoadModel(model_, {.threads = 1, .experts = options}).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status) || absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("choose a folder for packs with --cache-dir"));
}

TEST_F(TieredModelTest, ThePackIsInTheCacheFolderIfThereIsOne) {
  const std::string cache = folder_ + "/cache";
  std::filesystem::create_directory(cache);
  ExpertOptions options = Share(0.5);
  options.cache_dir = cache;
  const auto bundle = MustLoad(model_, options);
  EXPECT_FALSE(std::filesystem::exists(pack_));
  EXPECT_TRUE(std::filesystem::exists(absl::StrCat(cache, "/", bundle->digest, ".tidepack")));
}

TEST_F(TieredModelTest, MemoryBelowTheFloorNamesTheFloor) {
  const absl::Status status =
      LoadModel(model_, {.threads = 1,
                         .experts = {.memory = {.kind = ExpertMemoryKind::kBytes, .bytes = 4096}}})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("8 staging records and the 4 experts"));
  EXPECT_FALSE(std::filesystem::exists(pack_));
}

TEST_F(TieredModelTest, TheKvOfAnnouncedTokensIsCounted) {
  constexpr int64_t kGib = int64_t{1} << 30;
  const auto load = [&](int64_t kv_tokens) {
    const MemoryLimits limits = {
        .available_bytes = kGib, .reserve_bytes = 0, .kv_tokens = kv_tokens};
    return LoadModel(model_, {.threads = 1, .experts = {.limits = limits}}).status();
  };
  EXPECT_TRUE(load(1).ok());
  const absl::Status status = load(kGib);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("MiB are KV"));
}

// The memory of the index is also counted. The index is large here, because a small model has small
// blocks.
TEST_F(TieredModelTest, TheMemoryOfAKvDiskIsCounted) {
  constexpr int64_t kGib = int64_t{1} << 30;
  const auto load = [&](int64_t kv_disk_bytes) {
    const MemoryLimits limits = {
        .available_bytes = kGib / 4, .reserve_bytes = 0, .kv_disk_bytes = kv_disk_bytes};
    return LoadModel(model_, {.threads = 1, .experts = {.limits = limits}}).status();
  };
  EXPECT_TRUE(load(kGib / 16).ok());
  const absl::Status status = load(64 * kGib);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("lower --kv-memory, --kv-disk or"));
  EXPECT_THAT(std::string(load(1000).message()), HasSubstr("--kv-disk of 1000 bytes"));
}

constexpr int64_t kMib = 1 << 20;
constexpr ExpertSizes kSizes = {.experts = 100,
                                .record_bytes = 2 * kMib,
                                .total_bytes = 200 * kMib,
                                .dense_bytes = 30 * kMib,
                                .top_k = 4,
                                .staging = 8};

TEST(PlanExpertSlotsTest, AutoTakesAllExpertsOrTheFreeMemory) {
  const auto slots = [](int64_t available, int64_t reserve) {
    return PlanExpertSlots({}, {available * kMib, reserve * kMib, 50 * kMib}, kSizes);
  };
  EXPECT_EQ(*PlanExpertSlots({}, {}, kSizes), 0);                                // unknown memory
  EXPECT_EQ(slots(0, 0).status().code(), absl::StatusCode::kResourceExhausted);  // full
  EXPECT_EQ(*slots(290, 10), 0);  // 200 + 30 + 50 + 10: just fits
  EXPECT_EQ(*slots(289, 10), 199 / 2 - 8);
  EXPECT_EQ(*slots(114, 10), 4);
  EXPECT_EQ(slots(113, 10).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(slots(113, 10).status().message()), HasSubstr("at least 24.0 MiB"));
}

TEST(PlanExpertSlotsTest, TheReserveIsSmallerWhereThereIsLittle) {
  // A quarter of 400 MiB is reserved, so 300 - 50 - 30 MiB are left.
  EXPECT_EQ(*PlanExpertSlots({}, {400 * kMib, -1, 50 * kMib}, kSizes), 0);
  EXPECT_EQ(*PlanExpertSlots({}, {320 * kMib, -1, 50 * kMib}, kSizes), (240 - 80) / 2 - 8);
}

TEST(DefaultKvBytesTest, IsAGibibyteOrAQuarterOfTheFreeMemory) {
  EXPECT_EQ(DefaultKvBytes(std::nullopt), 1024 * kMib);  // unknown memory
  EXPECT_EQ(DefaultKvBytes(9000 * kMib), 1024 * kMib);
  EXPECT_EQ(DefaultKvBytes(400 * kMib), 100 * kMib);
  EXPECT_EQ(DefaultKvBytes(0), 1024);
}

TEST(PlanExpertSlotsTest, ExplicitMemoryCountsTheStagingRecords) {
  const auto bytes = [](int64_t mib) {
    return PlanExpertSlots({.kind = ExpertMemoryKind::kBytes, .bytes = mib * kMib}, {}, kSizes);
  };
  EXPECT_EQ(*bytes(24), 4);
  EXPECT_EQ(*bytes(25), 4);
  EXPECT_EQ(bytes(23).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*bytes(1000), 100);
  const auto share = [](double part) {
    return PlanExpertSlots({.kind = ExpertMemoryKind::kShare, .share = part}, {}, kSizes);
  };
  EXPECT_EQ(*share(0.5), 50 - 8);
  EXPECT_EQ(*share(0.99), 99 - 8);
  EXPECT_EQ(*share(1), 100);
}

// A share says how much memory is wanted, not how much may be used at most.
TEST(PlanExpertSlotsTest, ASmallShareIsRaisedToTheMinimum) {
  const auto memory = [](double share) {
    return ExpertMemory{.kind = ExpertMemoryKind::kShare, .share = share};
  };
  EXPECT_EQ(*PlanExpertSlots(memory(0.12), {}, kSizes), 4);
  EXPECT_EQ(RaisedShareNote(memory(0.12), kSizes), "");
  EXPECT_EQ(*PlanExpertSlots(memory(0.11), {}, kSizes), 4);
  EXPECT_EQ(
      RaisedShareNote(memory(0.11), kSizes),
      "--expert-memory 11% is 22.0 MiB, but experts need at least 24.0 MiB: 8 staging records "
      "and the 4 experts of one token in one layer, 2.0 MiB each; this minimum is used");
  ExpertSizes few = kSizes;
  few.experts = 3;
  few.total_bytes = 3 * few.record_bytes;
  EXPECT_EQ(*PlanExpertSlots(memory(0.25), {}, few), 3);
  EXPECT_EQ(RaisedShareNote({.kind = ExpertMemoryKind::kBytes, .bytes = 1}, kSizes), "");
  EXPECT_EQ(RaisedShareNote(memory(1), few), "");
}

// Each slot is as large as the largest expert, and a share is a share of bytes. So the number of
// slots is a smaller share of the number of experts.
TEST(PlanExpertSlotsTest, AShareOfUnequalExpertsIsOneOfTheirBytes) {
  ExpertSizes sizes = kSizes;
  sizes.total_bytes = 150 * kMib;
  const auto share = [&](double part) {
    return PlanExpertSlots({.kind = ExpertMemoryKind::kShare, .share = part}, {}, sizes);
  };
  EXPECT_EQ(*share(0.5), 75 / 2 - 8);
  EXPECT_EQ(*share(1), 100);
  EXPECT_EQ(*share(0.16), 4);
  EXPECT_EQ(*share(0.159), 4);
}

}  // namespace
}  // namespace tidepool::engine
