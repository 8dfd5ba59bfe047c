#include "engine/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/engine/model/gguf_edit.h"
#include "tests/engine/model/golden_data.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::Precision;

std::string Tiny(const std::string& name) { return "tests/golden/tiny/" + name + ".gguf"; }

// One sequence with its own KV.
class Sequence {
 public:
  Sequence(TransformerModel* model, int64_t slots)
      : model_(model),
        kv_(*model, 1, slots),
        workspace_(model->WorkspaceBytes({.rows = slots, .logit_rows = slots}), model->memory()) {}

  // Returns the logits of every row of `span`, which begins at slot 0.
  std::vector<float> Run(RowSpan span) {
    Batch batch;
    span.blocks = kv_.blocks(0);
    span.logit_rows.resize(span.rows());
    std::iota(span.logit_rows.begin(), span.logit_rows.end(), 0);
    batch.spans.push_back(std::move(span));
    const auto step = model_->Forward(batch, kv_.view(), &workspace_);
    EXPECT_TRUE(step.ok()) << step.status();
    return std::vector<float>(step->logits.data,
                              step->logits.data + step->logits.rows * step->logits.cols);
  }

 private:
  TransformerModel* const model_;
  ContiguousKv kv_;
  kernels::Arena workspace_;
};

RowSpan SpanOf(std::vector<int32_t> ids) {
  RowSpan span;
  span.token_ids = std::move(ids);
  return span;
}

TEST(TransformerTest, ReportsItsSizes) {
  const LoadedModel loaded = Load(Tiny("qwen3moe_f32"), {.kv_dtype = DType::kBF16});
  EXPECT_EQ(loaded.model->vocab_size(), 283);
  EXPECT_EQ(loaded.model->hidden_size(), 64);
  const KvSpec expected = {.kv_heads = 2, .k_dim = 32, .v_dim = 32, .dtype = DType::kBF16};
  const size_t layers = loaded.model->config().layers.size();
  EXPECT_EQ(loaded.model->kv_specs(), std::vector<KvSpec>(layers, expected));
}

TEST(TransformerTest, PositionsDefaultToSlots) {
  const LoadedModel loaded = Load(Tiny("llama_f32"), {});
  RowSpan span = SpanOf({5, 99, 200, 31, 7});
  Sequence sequence(loaded.model.get(), 32);
  const std::vector<float> expected = sequence.Run(span);
  span.positions = {0, 1, 2, 3, 4};
  EXPECT_EQ(sequence.Run(span), expected);
}

// RoPE depends only on distances between positions. Shifting all positions changes only rounding.
// Stretching them changes more.
TEST(TransformerTest, PositionsAreApartFromSlots) {
  const LoadedModel loaded = Load(Tiny("llama_f32"), {});
  RowSpan span = SpanOf({5, 99, 200, 31, 7});
  Sequence sequence(loaded.model.get(), 32);
  const std::vector<float> expected = sequence.Run(span);
  span.positions = {100, 101, 102, 103, 104};
  const std::vector<float> shifted = sequence.Run(span);
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(shifted[i], expected[i], 1e-3) << i;
  span.positions = {0, 10, 20, 30, 40};
  const std::vector<float> stretched = sequence.Run(span);
  double difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference = std::max<double>(difference, std::abs(stretched[i] - expected[i]));
  }
  EXPECT_GT(difference, 0.1);
}

TEST(TransformerTest, OnlyABidirectionalRowSeesLaterRows) {
  const LoadedModel loaded = Load(Tiny("llama_f32"), {});
  const int64_t cols = loaded.model->vocab_size();
  Sequence sequence(loaded.model.get(), 32);
  for (const kernels::Mask mask : {kernels::Mask::kCausal, kernels::Mask::kBidirectional}) {
    RowSpan span = SpanOf({5, 99, 200});
    span.mask = mask;
    std::vector<float> before = sequence.Run(span);
    span.token_ids[2] = 201;
    std::vector<float> after = sequence.Run(span);
    before.resize(cols);
    after.resize(cols);
    EXPECT_EQ(before == after, mask == kernels::Mask::kCausal);
  }
}

TEST(TransformerTest, ASlidingWindowCutsFromItsLengthOn) {
  constexpr int kWindow = 8;
  GgufEdit edit(Tiny("llama_f32"));
  edit.metadata().U32("llama.attention.sliding_window", kWindow);
  const LoadedModel windowed = Load(edit.Write("window.gguf"), {});
  EXPECT_EQ(windowed.model->kv_specs()[0].kind, KvKind::kWindow);
  EXPECT_EQ(windowed.model->kv_specs()[0].window, kWindow);
  const LoadedModel full = Load(Tiny("llama_f32"), {});
  std::vector<int32_t> ids(40);
  std::iota(ids.begin(), ids.end(), 60);
  const std::vector<float> a = AllLogits(windowed.model.get(), ids, 512);
  const std::vector<float> b = AllLogits(full.model.get(), ids, 512);
  const int64_t cols = full.model->vocab_size();
  for (int64_t row = 0; row < 40; ++row) {
    const bool same =
        std::equal(a.begin() + row * cols, a.begin() + (row + 1) * cols, b.begin() + row * cols);
    EXPECT_EQ(same, row < kWindow) << "row " << row;
  }
  EXPECT_EQ(AllLogits(windowed.model.get(), ids, 7), a);
}

// A pass has more rows than one part of attention can have. Its spans begin and end anywhere.
TEST(TransformerTest, RowsAttendedInPartsHaveTheBitsOfTheWhole) {
  const LoadedModel loaded = Load(Tiny("qwen3moe_q4_1"), {.threads = 2});
  constexpr int kLengths[] = {700, 200, kMaxAttentionRows, 1, 1100};
  constexpr int64_t kRows = 700 + 200 + kMaxAttentionRows + 1 + 1100;
  std::vector<RowSpan> spans;
  for (const int length : kLengths) {
    RowSpan& span = spans.emplace_back();
    for (int i = 0; i < length; ++i) span.token_ids.push_back((i * 31 + length) % 250);
    if (length == 200) span.mask = kernels::Mask::kBidirectional;
    span.logit_rows = {length / 2, length - 1};
    if (length == 1) span.logit_rows = {0};
  }
  const auto logits = [&](absl::Span<RowSpan> batch_spans, kernels::Arena* workspace) {
    const ContiguousKv kv(*loaded.model, std::size(kLengths), 1100);
    Batch batch;
    for (RowSpan& span : batch_spans) {
      span.blocks = kv.blocks(static_cast<int>(batch.spans.size()));
      batch.spans.push_back(span);
    }
    const auto step = loaded.model->Forward(batch, kv.view(), workspace);
    CHECK_OK(step.status());
    return std::vector<float>(step->logits.data,
                              step->logits.data + step->logits.rows * step->logits.cols);
  };
  kernels::Arena workspace(loaded.model->WorkspaceBytes({.rows = kRows, .logit_rows = 9}),
                           loaded.model->memory());
  const std::vector<float> together = logits(absl::MakeSpan(spans), &workspace);
  std::vector<float> apart;
  for (size_t i = 0; i < spans.size(); ++i) {
    const std::vector<float> one = logits(absl::MakeSpan(spans).subspan(i, 1), &workspace);
    apart.insert(apart.end(), one.begin(), one.end());
  }
  EXPECT_EQ(together, apart);

  // The last sequence is computed again, as a prompt in chunks.
  const ContiguousKv kv(*loaded.model, 1, 1100);
  for (int64_t begin = 0; begin < 1100; begin += 100) {
    const auto& ids = spans.back().token_ids;
    RowSpan span = SpanOf({ids.begin() + begin, ids.begin() + begin + 100});
    span.first_slot = begin;
    span.blocks = kv.blocks(0);
    if (begin + 100 == 1100) span.logit_rows = {99};
    const auto step = loaded.model->Forward({.spans = {span}}, kv.view(), &workspace);
    ASSERT_TRUE(step.ok());
    if (span.logit_rows.empty()) continue;
    EXPECT_TRUE(std::equal(step->logits.data, step->logits.data + step->logits.cols,
                           together.end() - step->logits.cols));
  }
}

TEST(TransformerTest, ObserverSeesEveryPartInOrder) {
  const LoadedModel loaded = Load(Tiny("qwen2moe_f32"), {});
  std::vector<std::string> names;
  std::vector<int64_t> rows;
  loaded.model->set_observer([&](absl::string_view name, kernels::ConstMatrixView view) {
    names.emplace_back(name);
    rows.push_back(view.rows);
    EXPECT_EQ(view.cols, loaded.model->hidden_size());
    for (int64_t i = 0; i < view.rows; ++i) EXPECT_TRUE(std::isfinite(view.Row(i)[0]));
  });
  Sequence sequence(loaded.model.get(), 32);
  const std::vector<float> observed = sequence.Run(SpanOf({5, 99, 200}));
  EXPECT_EQ(names, (std::vector<std::string>{"embedding", "layer.0.attention", "layer.0",
                                             "layer.1.attention", "layer.1", "norm"}));
  EXPECT_EQ(rows, std::vector<int64_t>(6, 3));
  loaded.model->set_observer(nullptr);
  EXPECT_EQ(sequence.Run(SpanOf({5, 99, 200})), observed);
  EXPECT_EQ(names.size(), 6u);
}

TEST(TransformerTest, CountsTheExpertsOfAForward) {
  const LoadedModel loaded = Load(Tiny("qwen3moe_f32"), {});
  const auto layers = static_cast<int64_t>(loaded.model->config().layers.size());
  Sequence sequence(loaded.model.get(), 64);
  sequence.Run(SpanOf({5}));
  EXPECT_EQ(loaded.model->last_expert_counts().hits, 3 * layers);
  EXPECT_EQ(loaded.model->last_expert_counts().misses, 0);
  std::vector<int32_t> many(60);
  std::iota(many.begin(), many.end(), 0);
  sequence.Run(SpanOf(many));
  EXPECT_GT(loaded.model->last_expert_counts().hits, 3 * layers);
  EXPECT_LE(loaded.model->last_expert_counts().hits, 8 * layers);
}

TEST(TransformerTest, ItsHeartGoesWithinAForward) {
  const LoadedModel loaded = Load(Tiny("qwen3moe_f32"), {});
  const auto layers = static_cast<uint64_t>(loaded.model->config().layers.size());
  Sequence sequence(loaded.model.get(), 64);
  const uint64_t before = loaded.model->heartbeat();
  sequence.Run(SpanOf({5}));
  // The heartbeat advances with each layer, and with the experts of each layer.
  EXPECT_GE(loaded.model->heartbeat(), before + 2 * layers);
}

TEST(TransformerTest, ADenseModelCountsNoExperts) {
  const LoadedModel loaded = Load(Tiny("llama_f32"), {});
  Sequence sequence(loaded.model.get(), 32);
  sequence.Run(SpanOf({5}));
  EXPECT_EQ(loaded.model->last_expert_counts().hits, 0);
}

// Distributes `rows` over random spans.
Batch RandomBatch(int64_t rows, int64_t logit_rows, const ContiguousKv& kv, std::mt19937* random) {
  Batch batch;
  int sequence = 0;
  while (rows > 0) {
    RowSpan span;
    const int64_t count = 1 + (*random)() % rows;
    span.token_ids.assign(count, 65);
    for (int64_t i = 0; i < count && logit_rows > 0; ++i, --logit_rows) {
      span.logit_rows.push_back(static_cast<int32_t>(i));
    }
    span.blocks = kv.blocks(sequence++);
    batch.spans.push_back(std::move(span));
    rows -= count;
  }
  return batch;
}

// Batches with any spans and contexts need exactly the memory that the dry run counted. In the dry
// run, the context of a span is its own rows.
TEST(TransformerTest, ADryRunMeasuresTheWorkspace) {
  std::mt19937 random(11);
  for (const char* name :
       {"llama_f32", "qwen2_q8_0", "mixtral_q4_0", "qwen2moe_f32", "qwen3moe_q4_1"}) {
    for (const Precision precision : {Precision::kFast, Precision::kExact}) {
      for (const int threads : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(name, precision == Precision::kExact ? " exact" : " fast", ", ",
                                  threads, " threads"));
        const LoadedModel loaded = Load(Tiny(name), {.precision = precision, .threads = threads});
        for (const int64_t rows : {1, 2, 7, 64, 300}) {
          const int64_t logit_rows = rows < 64 ? rows : random() % 64;
          const BatchLimits limits = {.rows = rows, .logit_rows = logit_rows};
          const ContiguousKv kv(*loaded.model, static_cast<int>(rows), rows);
          for (int round = 0; round < 3; ++round) {
            kernels::Arena workspace(loaded.model->WorkspaceBytes(limits), loaded.model->memory());
            const Batch batch = RandomBatch(rows, logit_rows, kv, &random);
            ASSERT_TRUE(loaded.model->Forward(batch, kv.view(), &workspace).ok());
            EXPECT_EQ(workspace.high_water(), workspace.capacity()) << rows << " rows";
          }
        }
      }
    }
  }
}

// A server's workspace is measured for its largest batch, and must hold every smaller one.
TEST(TransformerTest, FewerRowsNeverNeedMore) {
  for (const char* name : {"llama_f32", "qwen2moe_f32"}) {
    const LoadedModel loaded = Load(Tiny(name), {.threads = 2});
    size_t fewer = 0;
    for (int64_t rows = 1; rows < 1200; rows += rows < 40 ? 1 : 37) {
      const size_t bytes = loaded.model->WorkspaceBytes({.rows = rows, .logit_rows = 1});
      EXPECT_GE(bytes, fewer) << name << ", " << rows << " rows";
      fewer = bytes;
    }
  }
}

// The dry run is not a Forward. It changes no count, and calls nobody.
TEST(TransformerTest, ADryRunChangesNothing) {
  const LoadedModel loaded = Load(Tiny("qwen3moe_f32"), {});
  int calls = 0;
  loaded.model->OnLayerEnd([&] { ++calls; });
  loaded.model->set_observer([&](absl::string_view, kernels::ConstMatrixView) { ++calls; });
  const uint64_t heartbeat = loaded.model->heartbeat();
  EXPECT_GT(loaded.model->WorkspaceBytes({}), 0u);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(loaded.model->heartbeat(), heartbeat);
  EXPECT_EQ(loaded.model->last_expert_counts().hits, 0);
}

TEST(TransformerDeathTest, ABatchAgainstTheContractEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const LoadedModel loaded = Load(Tiny("llama_f32"), {});
  Sequence sequence(loaded.model.get(), 32);
  EXPECT_DEATH(sequence.Run(SpanOf({283})), "token id 283");
  EXPECT_DEATH(sequence.Run(SpanOf({})), "a span without rows");
}

}  // namespace
}  // namespace tidepool::engine
