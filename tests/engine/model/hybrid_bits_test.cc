// Models with recurrent states: batches and the division into passes must not change any bit of
// their logits.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/engine/model/gguf_edit.h"
#include "tests/engine/model/golden_data.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::Isa;
using kernels::Precision;

constexpr int kTokenLimit = 65;

std::vector<int32_t> Ids(int64_t count, int seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % kTokenLimit);
  return ids;
}

bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

RowSpan SpanOf(absl::Span<const int32_t> ids, int64_t first_slot) {
  RowSpan span;
  span.first_slot = first_slot;
  span.token_ids.assign(ids.begin(), ids.end());
  span.logit_rows.resize(ids.size());
  std::iota(span.logit_rows.begin(), span.logit_rows.end(), 0);
  return span;
}

struct Hybrid {
  const char* model;  // of tests/golden/families
  const char* architecture;
};

class HybridBitsTest : public testing::TestWithParam<Hybrid> {
 protected:
  // Loads the model with a context that is long enough for several parts of a pass.
  static LoadedModel LoadWith(RunOptions options) {
    options.precision = Precision::kFast;
    options.kv_dtype = DType::kF16;
    const auto& [model, architecture] = GetParam();
    GgufEdit edit(absl::StrCat("tests/golden/families/", model, ".gguf"));
    edit.metadata().U32(absl::StrCat(architecture, ".context_length"), 2048);
    return Load(edit.Write(absl::StrCat(model, "_long.gguf")), options);
  }
};

TEST_P(HybridBitsTest, AnyChunkGivesTheSameBits) {
  const std::vector<int32_t> ids = Ids(150, 1);
  const LoadedModel loaded = LoadWith({});
  const std::vector<float> expected =
      AllLogits(LoadWith({.backend = TestBackend::kCpu}).model.get(), ids, 512);
  for (const int64_t chunk : {1, 5, 31, 32, 33, 64}) {
    EXPECT_TRUE(SameBits(AllLogits(loaded.model.get(), ids, chunk), expected)) << "chunk " << chunk;
  }
}

TEST_P(HybridBitsTest, AnyThreadsAndIsaGiveTheSameBits) {
  const std::vector<int32_t> ids = Ids(90, 2);
  const std::vector<float> expected =
      AllLogits(LoadWith({.backend = TestBackend::kCpu}).model.get(), ids, 512);
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni}) {
    if (!kernels::MakeCpuBackend({.isa = isa}).ok()) continue;
    for (const int threads : {1, 2, 3}) {
      const LoadedModel loaded = LoadWith({.isa = isa, .threads = threads});
      EXPECT_TRUE(SameBits(AllLogits(loaded.model.get(), ids, 33), expected))
          << "isa " << static_cast<int>(isa) << ", threads " << threads;
    }
  }
}

// Random sequences continue in each batch. Unused memory is full of NaNs.
TEST_P(HybridBitsTest, BatchCompositionChangesNoBit) {
  constexpr int kSequences = 4;
  const LoadedModel loaded = LoadWith({});
  TransformerModel& model = *loaded.model;
  ContiguousKv kv(model, kSequences, 160);
  FillWithNans(model, kv.bytes());
  kernels::Arena workspace(model.WorkspaceBytes({.rows = 200, .logit_rows = 200}), model.memory());
  FillWithNans(model, {workspace.Allocate<std::byte>(workspace.capacity()), workspace.capacity()});
  std::mt19937 random(5);
  std::vector<std::vector<int32_t>> ids;
  int64_t left = 0;
  for (int i = 0; i < kSequences; ++i) {
    ids.push_back(Ids(40 + 29 * i, 10 + i));
    left += static_cast<int64_t>(ids.back().size());
  }
  std::vector<std::vector<float>> logits(kSequences);
  std::vector<int64_t> done(kSequences);
  while (left > 0) {
    Batch batch;
    std::vector<int> chosen;
    for (int i = 0; i < kSequences; ++i) {
      const int64_t rest = static_cast<int64_t>(ids[i].size()) - done[i];
      if (rest == 0 || random() % 3 == 0) continue;
      const int64_t rows = std::min<int64_t>(rest, 1 + (random() % 2) * (random() % 40));
      RowSpan span = SpanOf(absl::MakeConstSpan(ids[i]).subspan(done[i], rows), done[i]);
      kv.SetBlocks(i, &span);
      batch.spans.push_back(std::move(span));
      chosen.push_back(i);
      done[i] += rows;
      left -= rows;
    }
    if (batch.spans.empty()) continue;
    const auto step = model.Forward(batch, kv.view(), &workspace);
    ASSERT_TRUE(step.ok()) << step.status();
    int64_t row = 0;
    for (size_t s = 0; s < chosen.size(); ++s) {
      kv.Commit(chosen[s]);
      const int64_t rows = batch.spans[s].rows();
      logits[chosen[s]].insert(logits[chosen[s]].end(), step->logits.Row(row),
                               step->logits.Row(row + rows));
      row += rows;
    }
  }
  for (int i = 0; i < kSequences; ++i) {
    EXPECT_TRUE(SameBits(logits[i], AllLogits(&model, ids[i], 512))) << ids[i].size() << " tokens";
  }
}

// A pass has more rows than a part can have. Its spans begin and end anywhere.
TEST_P(HybridBitsTest, RowsOfAPassInPartsHaveTheBitsOfTheWhole) {
  constexpr int64_t kLengths[] = {700, 200, 1, 1100};
  const LoadedModel loaded = LoadWith({.threads = 2});
  TransformerModel& model = *loaded.model;
  ContiguousKv kv(model, std::size(kLengths), 1100);
  kernels::Arena workspace(model.WorkspaceBytes({.rows = 2001, .logit_rows = 8}), model.memory());
  Batch batch;
  for (const int64_t length : kLengths) {
    RowSpan span = SpanOf(Ids(length, static_cast<int>(length)), 0);
    span.logit_rows = {static_cast<int32_t>(length - 1)};
    kv.SetBlocks(static_cast<int>(batch.spans.size()), &span);
    batch.spans.push_back(std::move(span));
  }
  const auto step = model.Forward(batch, kv.view(), &workspace);
  ASSERT_TRUE(step.ok()) << step.status();
  const int64_t cols = model.vocab_size();
  const std::vector<float> together(step->logits.Row(0), step->logits.Row(batch.logit_rows()));
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    const std::vector<float> all = AllLogits(&model, batch.spans[i].token_ids, 100);
    EXPECT_TRUE(SameBits(absl::MakeConstSpan(together).subspan(i * cols, cols),
                         absl::MakeConstSpan(all).last(cols)))
        << kLengths[i];
  }
}

// A sequence continues from each snapshot of a pass, also from those in later parts of a span.
TEST_P(HybridBitsTest, SnapshotsAreTheStatesAfterTheirRows) {
  constexpr int64_t kRows = 600;
  constexpr int64_t kSnapshots[] = {1, 32, 33, 512, 513, 600};
  const LoadedModel loaded = LoadWith({});
  TransformerModel& model = *loaded.model;
  ContiguousKv kv(model, 1, kRows + 8, std::size(kSnapshots));
  kernels::Arena workspace(model.WorkspaceBytes({.rows = kRows, .logit_rows = 8}), model.memory());
  const std::vector<int32_t> ids = Ids(kRows + 8, 9);
  RowSpan span = SpanOf(absl::MakeConstSpan(ids).first(kRows), 0);
  span.logit_rows.clear();
  kv.SetBlocks(0, &span);
  for (size_t i = 0; i < std::size(kSnapshots); ++i) {
    span.state_snapshots.push_back(
        {.rows = kSnapshots[i], .blocks = kv.spare_state(static_cast<int>(i))});
  }
  ASSERT_TRUE(model.Forward({.spans = {span}}, kv.view(), &workspace).ok());
  const std::vector<float> all = AllLogits(&model, ids, 512);
  const int64_t cols = model.vocab_size();
  // The snapshots are used from the last to the first, because each run overwrites the KV after its
  // snapshot.
  for (size_t i = std::size(kSnapshots); i-- > 0;) {
    const int64_t first = kSnapshots[i];
    kv.ContinueFrom(static_cast<int>(i), 0);
    RowSpan next = SpanOf(absl::MakeConstSpan(ids).subspan(first, 8), first);
    kv.SetBlocks(0, &next);
    const auto step = model.Forward({.spans = {next}}, kv.view(), &workspace);
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_TRUE(SameBits(absl::MakeConstSpan(step->logits.Row(0), 8 * cols),
                         absl::MakeConstSpan(all).subspan(first * cols, 8 * cols)))
        << first << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, HybridBitsTest,
                         testing::Values(Hybrid{"qwen3next", "qwen3next"},
                                         Hybrid{"qwen3next_fused", "qwen3next"},
                                         Hybrid{"qwen35", "qwen35"},
                                         Hybrid{"qwen35moe", "qwen35moe"}, Hybrid{"lfm2", "lfm2"},
                                         Hybrid{"lfm2moe", "lfm2moe"}),
                         [](const auto& one) { return std::string(one.param.model); });

}  // namespace
}  // namespace tidepool::engine
