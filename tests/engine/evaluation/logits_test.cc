#include "engine/evaluation/logits.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/engine/model/golden_data.h"

namespace tidepool::engine {
namespace {

constexpr char kModel[] = "tests/golden/tiny/llama_f32.gguf";  // 283 tokens, context 512

class LogitsTest : public testing::Test {
 protected:
  // Records the positions and values that the sink received.
  absl::Status Run(absl::Span<const int32_t> ids, const LogitsOptions& options) {
    positions_.clear();
    rows_.clear();
    return ComputeLogits(loaded_.model.get(), ids, options,
                         [&](int64_t position, absl::Span<const float> logits) {
                           positions_.push_back(position);
                           rows_.emplace_back(logits.begin(), logits.end());
                           return absl::OkStatus();
                         });
  }

  void ExpectInvalid(absl::Span<const int32_t> ids, const LogitsOptions& options,
                     const std::string& words) {
    const absl::Status status = Run(ids, options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), words)) << status;
    EXPECT_TRUE(positions_.empty());
  }

  LoadedModel loaded_ = Load(kModel, {});
  std::vector<int64_t> positions_;
  std::vector<std::vector<float>> rows_;
};

TEST_F(LogitsTest, LastGivesTheLastRowAlone) {
  const std::vector<int32_t> ids = {7, 100, 3, 50, 9};
  ASSERT_TRUE(Run(ids, {.rows = LogitRows::kAll}).ok());
  EXPECT_EQ(positions_, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  const std::vector<float> last = rows_[4];
  for (const int64_t chunk : {1, 2, 5, 512}) {
    ASSERT_TRUE(Run(ids, {.chunk_rows = chunk}).ok());
    EXPECT_EQ(positions_, (std::vector<int64_t>{4}));
    EXPECT_EQ(rows_[0], last) << "chunk " << chunk;
  }
}

TEST_F(LogitsTest, BadInputIsNamed) {
  ExpectInvalid({}, {}, "no tokens");
  ExpectInvalid({1, 283}, {}, "token id 283 at position 1, expected 0 to 282");
  ExpectInvalid({-1}, {}, "token id -1 at position 0");
  ExpectInvalid({1}, {.chunk_rows = 0}, "a chunk of 0 rows");
  ExpectInvalid(std::vector<int32_t>(513, 1), {}, "513 tokens, expected at most 512");
}

TEST_F(LogitsTest, TheSinksErrorEndsIt) {
  int calls = 0;
  const auto sink = [&](int64_t, absl::Span<const float>) {
    ++calls;
    return absl::DataLossError("the disk is full");
  };
  EXPECT_EQ(ComputeLogits(loaded_.model.get(), {1, 2, 3}, {.rows = LogitRows::kAll}, sink),
            absl::DataLossError("the disk is full"));
  EXPECT_EQ(calls, 1);
}

TEST_F(LogitsTest, PartsComeWithTheirPositions) {
  std::vector<std::pair<std::string, int64_t>> parts;
  const LogitsOptions options = {
      .chunk_rows = 2,
      .parts =
          [&](absl::string_view name, int64_t first, kernels::ConstMatrixView rows) {
            if (name == "layer.2" || name == "norm") parts.emplace_back(name, first);
            EXPECT_EQ(rows.cols, 64);
            return absl::OkStatus();
          },
  };
  ASSERT_TRUE(Run({1, 2, 3, 4, 5}, options).ok());
  EXPECT_EQ(parts, (std::vector<std::pair<std::string, int64_t>>{
                       {"layer.2", 0}, {"layer.2", 2}, {"layer.2", 4}, {"norm", 4}}));
  // The observer was removed.
  parts.clear();
  ASSERT_TRUE(Run({1, 2, 3}, {}).ok());
  EXPECT_TRUE(parts.empty());
}

TEST_F(LogitsTest, APartSinksErrorEndsIt) {
  const LogitsOptions options = {.parts = [](absl::string_view, int64_t, kernels::ConstMatrixView) {
    return absl::DataLossError("the disk is full");
  }};
  EXPECT_EQ(Run({1, 2, 3}, options), absl::DataLossError("the disk is full"));
  EXPECT_TRUE(positions_.empty());
}

}  // namespace
}  // namespace tidepool::engine
