// Tests the recurrent states of a ContiguousKv.
#include "engine/model/contiguous_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/fakes/scripted_model.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kLength = 100;

class ContiguousKvTest : public testing::Test {
 protected:
  RowSpan SpanOf(int sequence, int64_t first, int64_t rows) {
    RowSpan span;
    span.first_slot = first;
    for (int64_t i = first; i < first + rows; ++i) {
      span.token_ids.push_back(static_cast<int32_t>((i * 7 + 13 * sequence) % 200));
    }
    span.logit_rows = {static_cast<int32_t>(rows - 1)};
    kv_.SetBlocks(sequence, &span);
    return span;
  }

  std::vector<float> Logits(const Batch& batch) {
    const auto output = model_.Forward(batch, kv_.view(), &workspace_);
    EXPECT_TRUE(output.ok()) << output.status();
    const float* row = output->logits.Row(0);
    return {row, row + output->logits.cols};
  }

  // Computes a sequence in chunks of this size. Returns the logits after all tokens.
  std::vector<float> InChunks(int sequence, int64_t chunk) {
    std::vector<float> logits;
    for (int64_t first = 0; first < kLength; first += chunk) {
      logits = Logits({{SpanOf(sequence, first, std::min(chunk, kLength - first))}});
      kv_.Commit(sequence);
    }
    return logits;
  }

  fakes::ScriptedModel model_{{.state_layers = 2}};
  kernels::Arena workspace_{model_.WorkspaceBytes({.rows = 512, .logit_rows = 4})};
  ContiguousKv kv_{model_, /*sequences=*/2, kLength, /*spare_states=*/1};
};

TEST_F(ContiguousKvTest, ChunksContinueFromTheStateOfTheLastCommit) {
  const std::vector<float> expected = InChunks(0, kLength);
  for (const int64_t chunk : {1, 7, 32, 64}) EXPECT_EQ(InChunks(0, chunk), expected) << chunk;
  EXPECT_NE(InChunks(1, kLength), expected);
}

TEST_F(ContiguousKvTest, APassCanBeRepeatedUntilItIsCommitted) {
  const std::vector<float> expected = InChunks(0, kLength);
  Logits({{SpanOf(0, 0, 60)}});
  kv_.Commit(0);
  Logits({{SpanOf(0, 60, 10)}});
  EXPECT_EQ(Logits({{SpanOf(0, 60, 40)}}), expected);
  // A second commit changes the logits. This shows that the test model really reads the state.
  kv_.Commit(0);
  EXPECT_NE(Logits({{SpanOf(0, 60, 40)}}), expected);
}

TEST_F(ContiguousKvTest, ASnapshotContinuesTheSequence) {
  const std::vector<float> expected = InChunks(0, kLength);
  RowSpan span = SpanOf(0, 0, 90);
  span.state_snapshots = {{.rows = 64, .blocks = kv_.spare_state(0)}};
  Logits({{span}});
  kv_.Commit(0);
  kv_.ContinueFrom(0, 0);
  EXPECT_EQ(Logits({{SpanOf(0, 64, 36)}}), expected);
}

TEST_F(ContiguousKvTest, AModelWithoutStatesHasNone) {
  const fakes::ScriptedModel plain;
  const ContiguousKv kv(plain, 1, 10);
  RowSpan span;
  span.token_ids = {1};
  kv.SetBlocks(0, &span);
  EXPECT_TRUE(span.state_in.empty());
  EXPECT_TRUE(span.state_out.empty());
  EXPECT_EQ(ContiguousKv::StateBytes(plain.kv_specs()), 0u);
  EXPECT_EQ(ContiguousKv::StateBytes(model_.kv_specs()), 2u * (2 * 600 + 3 * 40));
}

}  // namespace
}  // namespace tidepool::engine
