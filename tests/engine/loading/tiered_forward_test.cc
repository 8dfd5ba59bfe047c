// Whole models whose experts are read in random order, compared with the same models with all
// experts in memory.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/evaluation/logits.h"
#include "engine/loading/model_bundle.h"
#include "engine/model/contiguous_kv.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/device.h"
#include "moe/tiered_experts.h"
#include "tests/engine/model/test_backend.h"
#include "tests/engine/puppet_model.h"
#include "tests/moe/tier_checks.h"
#include "tools/synthetic/shape.h"

namespace tidepool::engine {
namespace {

using moe::PolicyKind;
using moe::Prefetch;

constexpr PolicyKind kPolicies[] = {PolicyKind::kAdaptive, PolicyKind::kTide, PolicyKind::kLru,
                                    PolicyKind::kStatic};

std::vector<int32_t> Ids(int64_t count, int seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 290);
  return ids;
}

bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> Logits(TransformerModel* model, const std::vector<int32_t>& ids,
                          const LogitsOptions& options) {
  std::vector<float> all;
  CHECK_OK(ComputeLogits(model, ids, options, [&](int64_t, absl::Span<const float> logits) {
    all.insert(all.end(), logits.begin(), logits.end());
    return absl::OkStatus();
  }));
  return all;
}

// The progress of one sequence through batches.
struct Walker {
  std::vector<int32_t> ids;
  std::vector<float> expected;  // [ids.size(), vocabulary]
  int64_t done = 0;
};

class TieredForwardTest : public testing::Test {
 protected:
  // On a device, if not all experts are in memory.
  std::unique_ptr<ModelBundle> MustLoad(const ExpertOptions& experts) const {
    LoadOptions options = {.threads = 2, .experts = experts};
    if (experts.memory.kind != ExpertMemoryKind::kAuto) {
      options.device = TestDevice();
      options.make_backend = MakeLoaderBackend;
    }
    if (options.device == kernels::Device::kCuda) {
      options.experts.host_memory = {.kind = ExpertMemoryKind::kShare, .share = 0.3};
    }
    auto bundle = LoadModel(models_.path(), options);
    CHECK_OK(bundle.status());
    return *std::move(bundle);
  }

  PuppetModels models_{testing::TempDir() + "/tiered_forward_test"};
};

constexpr int64_t kExperts = 3 * 16;  // of tiny-moe
constexpr int64_t kTopK = 4;

using Parts = std::vector<std::pair<Walker*, int64_t>>;  // rows of sequences

// Returns random numbers of rows for some of the unfinished sequences.
Parts DrawParts(std::vector<Walker>* walkers, std::mt19937* random) {
  Parts parts;
  for (Walker& walker : *walkers) {
    const int64_t rest = static_cast<int64_t>(walker.ids.size()) - walker.done;
    if (rest == 0 || (*random)() % 3 == 0) continue;
    const int64_t rows = (*random)() % 3 == 0 ? 1 + (*random)() % 25 : 1;
    parts.emplace_back(&walker, std::min(rest, rows));
  }
  return parts;
}

Batch BatchOf(const Parts& parts, const Walker* first, const ContiguousKv& kv) {
  Batch batch;
  for (const auto& [walker, rows] : parts) {
    RowSpan& span = batch.spans.emplace_back();
    const auto begin = walker->ids.begin() + walker->done;
    span.first_slot = walker->done;
    span.token_ids.assign(begin, begin + rows);
    span.request = walker - first;
    span.phase = rows > 1 ? moe::Phase::kPrefill : moe::Phase::kDecode;
    span.logit_rows.resize(rows);
    std::iota(span.logit_rows.begin(), span.logit_rows.end(), 0);
    span.blocks = kv.blocks(static_cast<int>(span.request));
  }
  return batch;
}

moe::OffloadChange RandomChange(int staging, int64_t record, std::mt19937* random) {
  const auto draw = [&](uint32_t below) { return static_cast<int64_t>((*random)() % below); };
  moe::OffloadChange change;
  if (draw(2) == 0) change.policy = kPolicies[draw(4)];
  if (draw(2) == 0) change.refresh_interval = 1 + draw(5);
  if (draw(2) == 0) change.expert_memory_bytes = (staging + kTopK + draw(kExperts)) * record;
  if (draw(2) == 0) change.prefetch = draw(2) == 0 ? Prefetch::kOn : Prefetch::kOff;
  return change;
}

moe::TieredOptions RandomOptions(PolicyKind kind, std::mt19937* random) {
  const auto draw = [&](uint32_t below) { return static_cast<int64_t>((*random)() % below); };
  moe::TieredOptions options = {.slots = kTopK + draw(kExperts - kTopK + 1),
                                .staging = 1 + static_cast<int>(draw(8)),
                                .policy = {.kind = kind, .refresh_interval = 1 + draw(3)},
                                .prefetch = draw(4) == 0 ? Prefetch::kOff : Prefetch::kOn};
  for (int64_t i = 0; i < kExperts; ++i) options.policy.profile.push_back(draw(100));
  return options;
}

// Checks that the interesting events did occur.
void ExpectAllEvents(const moe::OffloadStats& sum) {
  EXPECT_GT(sum.placement.hits, 1000);
  EXPECT_GT(sum.placement.promotions, 1000);
  EXPECT_GT(sum.placement.pass_throughs, 1000);
  EXPECT_GT(sum.prefetch_used_bytes, 0);
  EXPECT_GT(sum.prefetch_wasted_bytes, 0);
}

// Covers random budgets, policies and prefetch, with and without resident experts at the start, and
// changes during the run. Sequences continue in random batches, and reads end in random order after
// random times.
TEST_F(TieredForwardTest, NothingThatTiersDoChangesABit) {
  models_.Write(*tools::FindShape("tiny-moe"), GgmlType::kQ4_K);
  std::vector<Walker> fresh(5);
  {
    const auto resident = MustLoad({});
    for (size_t i = 0; i < fresh.size(); ++i) {
      fresh[i].ids = Ids(12 + 17 * static_cast<int64_t>(i), static_cast<int>(i));
      fresh[i].expected = Logits(resident->model.get(), fresh[i].ids, {.rows = LogitRows::kAll});
    }
  }
  moe::OffloadStats sum;
  for (int seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::mt19937 delays(seed);  // used by the reader's thread
    const moe::TieredOptions options = RandomOptions(kPolicies[seed % 4], &random);
    PuppetModel puppet = models_.Make(options, {.threads = 1 + seed % 2, .seed = seed});
    puppet.puppet->set_fate([&delays](const moe::RecordRead&) {
      if (delays() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 300));
      return absl::OkStatus();
    });
    if (random() % 2 == 0) {
      ASSERT_TRUE(puppet.load_residents().ok());
    }
    const int64_t vocabulary = puppet.model->vocab_size();
    const ContiguousKv kv(*puppet.model, static_cast<int>(fresh.size()), 128);
    kernels::Arena workspace(puppet.model->WorkspaceBytes({.rows = 128, .logit_rows = 128}),
                             puppet.model->memory());
    std::vector<Walker> walkers = fresh;
    const auto ended = [](const Walker& w) { return w.done == static_cast<int64_t>(w.ids.size()); };
    while (!std::all_of(walkers.begin(), walkers.end(), ended)) {
      const Parts parts = DrawParts(&walkers, &random);
      if (parts.empty()) continue;
      const auto step =
          puppet.model->Forward(BatchOf(parts, walkers.data(), kv), kv.view(), &workspace);
      ASSERT_TRUE(step.ok()) << step.status();
      const float* row = step->logits.data;
      for (const auto& [walker, rows] : parts) {
        const auto expected = absl::MakeConstSpan(walker->expected)
                                  .subspan(walker->done * vocabulary, rows * vocabulary);
        ASSERT_TRUE(SameBits(absl::MakeConstSpan(row, expected.size()), expected))
            << "sequence " << walker - walkers.data() << " from " << walker->done << " on";
        row += expected.size();
        walker->done += rows;
      }
      if (random() % 6 == 0) {
        const int64_t record = puppet.experts()->Settings().record_bytes;
        const absl::Status changed =
            puppet.experts()->Change(RandomChange(options.staging, record, &random));
        ASSERT_TRUE(changed.ok()) << changed;
      }
    }
    const moe::OffloadStats stats = *puppet.model->offload_stats();
    EXPECT_EQ(stats.failed_reads, 0);
    sum.placement += stats.placement;
    sum.prefetch_used_bytes += stats.prefetch_used_bytes;
    sum.prefetch_wasted_bytes += stats.prefetch_wasted_bytes;
  }
  ExpectAllEvents(sum);
}

int64_t CountAbsent(const moe::ExpertMap& map) {
  return std::count(map.resident.begin(), map.resident.end(), false);
}

// Below a device, the host's tier reads the file.
const moe::PlacementCounters& ReaderCounters(const moe::OffloadStats& stats) {
  return stats.host.has_value() ? stats.host->placement : stats.placement;
}
int64_t SlotsOfReader(const moe::OffloadStats& stats) {
  return stats.host.has_value() ? stats.host->slots : stats.slots;
}

void ExpectReadOnce(const moe::OffloadStats& before, const moe::OffloadStats& stats,
                    int64_t absent) {
  const int64_t misses = ReaderCounters(stats).misses() - ReaderCounters(before).misses();
  const int64_t read =
      stats.demand_bytes + stats.prefetch_bytes - before.demand_bytes - before.prefetch_bytes;
  EXPECT_LE(read * 100, std::min(misses, absent) * stats.record_bytes * 105);
}

// `before` has the counts at the start, because copies may end after their pass.
void ExpectCopiedOnce(const moe::OffloadStats& before, const moe::OffloadStats& stats,
                      int64_t absent) {
  const int64_t misses = stats.placement.misses() - before.placement.misses();
  const int64_t copied = stats.host->copied_bytes - before.host->copied_bytes;
  EXPECT_GT(copied, 0);
  EXPECT_LE(copied * 100, std::min(misses, absent) * stats.record_bytes * 105);
  moe::ExpectMissesAddUp(stats);
}

// The prompt fills a pass, needs nearly all experts, and its outputs do not fit into the workspace.
// It must read each missing expert only once, whichever experts are in memory. One exception:
// experts that are evicted for an earlier layer's misses during the pass, as lru does, are read
// again. On a device, its memory also gets a copy of each missing expert only once.
TEST_F(TieredForwardTest, APassReadsEachMissingRecordOnce) {
  constexpr tools::Shape kWide = {.name = "wide",
                                  .architecture = "qwen3moe",
                                  .layers = 4,
                                  .hidden = 1024,
                                  .heads = 2,
                                  .kv_heads = 1,
                                  .head_dim = 64,
                                  .ffn_width = 64,
                                  .experts = 64,
                                  .experts_used = 8,
                                  .expert_width = 64,
                                  .vocabulary = 512,
                                  .context = 4096,
                                  .rope_base = 1e6f,
                                  .norm_eps = 1e-6f,
                                  .qk_norm = true};
  constexpr int64_t kAll = 4 * 64;
  models_.Write(kWide, GgmlType::kQ4_0);
  const std::vector<int32_t> ids = Ids(2048, 1);
  const LogitsOptions one_pass = {.chunk_rows = 2048};
  const std::vector<float> expected = Logits(MustLoad({})->model.get(), ids, one_pass);
  for (const double share : {0.15, 0.4, 0.8}) {
    for (const PolicyKind policy : kPolicies) {
      SCOPED_TRACE(absl::StrCat(moe::PolicyName(policy), " ", share));
      const auto bundle = MustLoad({.memory = {.kind = ExpertMemoryKind::kShare, .share = share},
                                    .policy = {.kind = policy}});
      EXPECT_EQ(bundle->prefill_rows(), 2048);
      const moe::OffloadStats start = *bundle->model->offload_stats();
      moe::OffloadStats before = start;
      int64_t absent = 0;  // sum over the passes of the experts that were not in the top tier
      for (int pass = 0; pass < 2; ++pass) {
        absent += CountAbsent(bundle->model->offload_control()->Map());
        EXPECT_TRUE(SameBits(Logits(bundle->model.get(), ids, one_pass), expected));
        const moe::OffloadStats stats = *bundle->model->offload_stats();
        ASSERT_GT((stats.placement.lookups() - before.placement.lookups()) * 8, kAll * 7);
        const bool reads_evicted = policy == PolicyKind::kLru && pass > 0;
        ExpectReadOnce(before, stats, reads_evicted ? INT64_MAX : kAll - SlotsOfReader(stats));
        if (stats.host.has_value()) {
          ExpectCopiedOnce(start, stats, reads_evicted ? INT64_MAX : absent);
        }
        before = stats;
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::engine
