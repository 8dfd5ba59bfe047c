// The rows that prompts get in a step, as literal snapshots.
#include "engine/scheduler/prompt_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tidepool::engine {
namespace {

using Rows = std::vector<int64_t>;

constexpr PromptRowLimits kLimits = {
    .step = 100, .prompt = 100, .beside_ending = 100, .unfinished = 4};

TEST(PromptRowsTest, TheLeastLeftGoesFirst) {
  EXPECT_EQ(SharePromptRows({{.arrival = 1, .left = 400}, {.arrival = 2, .left = 30}}, kLimits),
            (Rows{70, 30}));
  EXPECT_EQ(SharePromptRows({{.arrival = 1, .left = 200}, {.arrival = 2, .left = 300}}, kLimits),
            (Rows{100, 0}));
}

TEST(PromptRowsTest, TheOldestHasAQuarterInAnyCase) {
  EXPECT_EQ(SharePromptRows({{.arrival = 1, .left = 400}, {.arrival = 2, .left = 300}}, kLimits),
            (Rows{25, 75}));
  EXPECT_EQ(
      SharePromptRows(
          {{.arrival = 1, .left = 400}, {.arrival = 2, .left = 300}, {.arrival = 3, .left = 40}},
          kLimits),
      (Rows{25, 35, 40}));
}

// If rows cost 1 + depth / attention_depth each, no step costs more than the first one.
TEST(PromptRowsTest, DeepStepsCostNoMoreThanTheFirst) {
  const PromptRowLimits limits = {.step = 512, .prompt = 512, .attention_depth = 3072};
  int64_t depth = 0;
  int64_t steps = 0;
  for (const int64_t tokens = 4000; depth < tokens; ++steps) {
    const Rows rows =
        SharePromptRows({{.arrival = 1, .left = tokens - depth, .depth = depth}}, limits);
    ASSERT_GE(rows[0], std::min<int64_t>(128, tokens - depth));
    const double row_cost = 1 + (static_cast<double>(depth) + rows[0] / 2.0) / 3072;
    EXPECT_LE(rows[0] * row_cost, 512 * (1 + 256.0 / 3072)) << depth;
    depth += rows[0];
  }
  EXPECT_EQ(steps, 13);
}

TEST(PromptRowsTest, VeryDeepStepsKeepSomeRows) {
  const PromptRowLimits limits = {.step = 512, .prompt = 512, .attention_depth = 100};
  EXPECT_EQ(RowsAtDepth(0, limits), 512);
  EXPECT_EQ(RowsAtDepth(100, limits), 256);
  EXPECT_EQ(RowsAtDepth(1'000'000, limits), 128);
  EXPECT_EQ(RowsAtDepth(1'000'000, {.prompt = 100, .attention_depth = 100}), 100);
  EXPECT_EQ(RowsAtDepth(1'000'000, {.prompt = 512}), 512);
}

TEST(PromptRowsTest, PrincipalsShareEqually) {
  EXPECT_EQ(SharePromptRows({{.arrival = 1, .principal = "a", .left = 200},
                             {.arrival = 2, .principal = "a", .left = 190},
                             {.arrival = 3, .principal = "a", .left = 180},
                             {.arrival = 4, .principal = "b", .left = 1000}},
                            kLimits),
            (Rows{13, 0, 37, 50}));
}

TEST(PromptRowsTest, TheUnusedShareOfAPrincipalGoesToTheOthers) {
  EXPECT_EQ(SharePromptRows({{.arrival = 1, .principal = "a", .left = 200},
                             {.arrival = 2, .principal = "b", .left = 10},
                             {.arrival = 3, .principal = "c", .left = 200}},
                            kLimits),
            (Rows{45, 10, 45}));
}

TEST(PromptRowsTest, HigherPrioritiesGoFirst) {
  EXPECT_EQ(SharePromptRows({{.arrival = 1, .left = 5},
                             {.arrival = 2, .priority = 1, .principal = "b", .left = 80},
                             {.arrival = 3, .priority = 1, .left = 80}},
                            kLimits),
            (Rows{0, 50, 50}));
}

TEST(PromptRowsTest, NoPromptTakesMoreThanItsChunk) {
  PromptRowLimits limits = kLimits;
  limits.prompt = 40;
  EXPECT_EQ(SharePromptRows({{.arrival = 1, .left = 400}, {.arrival = 2, .left = 500}}, limits),
            (Rows{40, 40}));
}

TEST(PromptRowsTest, APromptThatEndsDoesNotWaitForTheOthersRows) {
  PromptRowLimits limits = kLimits;
  limits.beside_ending = 12;
  const PromptInPrefill first = {.arrival = 1, .left = 400};
  const PromptInPrefill second = {.arrival = 2, .principal = "b", .left = 400};
  EXPECT_EQ(SharePromptRows({first, {.arrival = 3, .left = 10}}, limits), (Rows{12, 10}));
  // The others share a third of the ending rows, if that is more.
  EXPECT_EQ(SharePromptRows({first, {.arrival = 3, .left = 60}}, limits), (Rows{20, 60}));
  // Two other prompts share that limit.
  EXPECT_EQ(SharePromptRows({first, second, {.arrival = 3, .left = 10}}, limits), (Rows{5, 6, 10}));
  // If no prompt ends in the step, there is no such limit.
  EXPECT_EQ(SharePromptRows({first, second}, limits), (Rows{50, 50}));
}

TEST(PromptRowsTest, PromptsInPartAreBounded) {
  PromptRowLimits limits = kLimits;
  limits.unfinished = 2;
  PromptRows rows;
  rows.Begin(limits);
  EXPECT_EQ(rows.Judge({.arrival = 1, .principal = "a", .left = 400}), PromptRows::Turn::kNow);
  rows.Add({.arrival = 1, .principal = "a", .left = 400});
  // The last slot is only for a prompt that is shorter than the first one.
  EXPECT_EQ(rows.Judge({.arrival = 2, .principal = "b", .left = 500}), PromptRows::Turn::kNoSlot);
  EXPECT_EQ(rows.Judge({.arrival = 2, .principal = "b", .left = 300}), PromptRows::Turn::kNow);
  rows.Add({.arrival = 2, .principal = "b", .left = 300});
  EXPECT_EQ(rows.Judge({.arrival = 3, .principal = "c", .left = 200}), PromptRows::Turn::kNoSlot);
  // A prompt that ends in this step needs no slot.
  EXPECT_EQ(rows.Judge({.arrival = 3, .principal = "c", .left = 20}), PromptRows::Turn::kNow);
  // A prompt that ends only if another prompt gets no rows needs no slot either.
  rows.Add({.arrival = 3, .principal = "c", .left = 33});
  EXPECT_EQ(rows.Judge({.arrival = 4, .principal = "c", .left = 20}), PromptRows::Turn::kNoSlot);
}

TEST(PromptRowsTest, WithoutRowsNoPromptBegins) {
  PromptRows rows;
  rows.Begin(kLimits);
  rows.Add({.arrival = 1, .left = 200});
  EXPECT_EQ(rows.Judge({.arrival = 2, .left = 300}), PromptRows::Turn::kNoRows);
  rows.SetStepRows(0);
  EXPECT_EQ(rows.Judge({.arrival = 2, .left = 1}), PromptRows::Turn::kNoRows);
}

}  // namespace
}  // namespace tidepool::engine
