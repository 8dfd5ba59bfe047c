#include "moe/policy/row_history.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool::moe {
namespace {

constexpr int kExperts = 16;
constexpr int kTopK = 2;

struct Forward {
  std::vector<int32_t> ids;
  std::vector<Phase> phases;
  std::vector<int64_t> requests;
};

void Add(const Forward& forward, RowHistory* history, FrequencyTable* table) {
  history->Add({.tokens = static_cast<int64_t>(forward.ids.size()) / kTopK,
                .ids = forward.ids,
                .phases = forward.phases,
                .requests = forward.requests},
               table);
}

double UseChance(const RowHistory& history, const FrequencyTable& table, int32_t expert,
                 int32_t idle = 0) {
  float chance = 0;
  history.UseChances({expert}, idle, table.rates(), &chance);
  return chance;
}

TEST(RowHistoryTest, CasesDistinguishRecentSteps) {
  EXPECT_EQ(RowHistory::CaseOf(0), 0);
  EXPECT_NE(RowHistory::CaseOf(1), RowHistory::CaseOf(2));
  EXPECT_NE(RowHistory::CaseOf(1), RowHistory::CaseOf(0x11));
  EXPECT_NE(RowHistory::CaseOf(1), RowHistory::CaseOf(0x10001));
  EXPECT_EQ(RowHistory::CaseOf(0x11), RowHistory::CaseOf(0x801));
  for (const uint32_t uses : {1u, 0xffu, 0xffffffffu}) {
    EXPECT_LE(RowHistory::CaseOf(uses), RowHistory::CaseOf(0xffffffffu));
  }
}

TEST(FrequencyTableTest, RateIsTheShareOfRecentSamples) {
  FrequencyTable table(4, 0.125f);
  EXPECT_FLOAT_EQ(table.rate(3), 0.125f);
  table.Add(3, 800, 200);
  EXPECT_NEAR(table.rate(3), 0.25, 1e-3);
  EXPECT_FLOAT_EQ(table.rate(2), 0.125f);
  for (int i = 0; i < 500; ++i) table.Add(3, 100, 90);
  EXPECT_NEAR(table.rate(3), 0.9, 1e-2) << "old samples are forgotten";
}

// Choices that the tier above this pool (a GPU) has served are kNoExpert.
TEST(RowHistoryTest, ChoicesThatAnotherTierHasServedAreNotUses) {
  RowHistory reduced(kExperts, kTopK);
  FrequencyTable table(RowHistory::kCases, 1.0f * kTopK / kExperts);
  constexpr int32_t kNone = LayerRouting::kNoExpert;
  for (int step = 0; step < 60; ++step) {
    Add({{0, kNone, kNone, kNone}, {Phase::kDecode}, {7, 8}}, &reduced, &table);
  }
  EXPECT_GT(UseChance(reduced, table, 0), 0.9);
  for (int32_t expert = 1; expert < kExperts; ++expert) {
    EXPECT_LT(UseChance(reduced, table, expert), 0.1) << expert;
  }
}

// Each of two sequences always uses the same experts. An expert that both use is more likely to be
// needed than an expert that only one uses.
TEST(RowHistoryTest, PredictsThatRowsKeepTheirExperts) {
  RowHistory history(kExperts, kTopK);
  FrequencyTable table(RowHistory::kCases, 1.0f * kTopK / kExperts);
  for (int step = 0; step < 60; ++step) {
    Add({{0, 1, 1, 2}, {Phase::kDecode}, {7, 8}}, &history, &table);
  }
  EXPECT_GT(UseChance(history, table, 0), 0.9);
  EXPECT_GT(UseChance(history, table, 1), UseChance(history, table, 0));
  EXPECT_FLOAT_EQ(UseChance(history, table, 2), UseChance(history, table, 0));
  EXPECT_LT(UseChance(history, table, 5), 0.05);
  EXPECT_LT(UseChance(history, table, 0, RowHistory::kSteps), 0.05) << "long unused";
  // A sequence that is not in the batch does not count.
  Add({{1, 2}, {Phase::kDecode}, {8}}, &history, &table);
  EXPECT_LT(UseChance(history, table, 0), 0.05);
  EXPECT_GT(UseChance(history, table, 2), 0.9);
  Add({{0, 1, 1, 2}, {Phase::kDecode}, {7, 8}}, &history, &table);
  EXPECT_GT(UseChance(history, table, 0), 0.9) << "the sequence is back";
}

TEST(RowHistoryTest, PositionsOfOneRequestAreSeparateRows) {
  RowHistory history(kExperts, kTopK);
  FrequencyTable table(RowHistory::kCases, 1.0f * kTopK / kExperts);
  for (int step = 0; step < 60; ++step) {
    Add({{0, 1, 2, 3}, {Phase::kDecode}, {7}}, &history, &table);
  }
  // If both positions were one row, each expert would be in half of its steps.
  EXPECT_GT(UseChance(history, table, 0), 0.9);
  EXPECT_GT(UseChance(history, table, 3), 0.9);
}

TEST(RowHistoryTest, DecodingContinuesTheEndOfThePrompt) {
  RowHistory history(kExperts, kTopK);
  FrequencyTable table(RowHistory::kCases, 1.0f * kTopK / kExperts);
  for (int step = 0; step < 60; ++step) {
    Add({{0, 1}, {Phase::kDecode}, {7}}, &history, &table);
  }
  Forward prompt{{}, {Phase::kPrefill}, {9}};
  for (int token = 0; token < 3 * RowHistory::kSteps; ++token) {
    const bool is_end = token >= 2 * RowHistory::kSteps;
    prompt.ids.insert(prompt.ids.end(), is_end ? std::initializer_list<int32_t>{4, 5}
                                               : std::initializer_list<int32_t>{8, 9});
  }
  Add(prompt, &history, &table);
  EXPECT_GT(UseChance(history, table, 4), 0.9);
  EXPECT_LT(UseChance(history, table, 8), 0.05);
  EXPECT_LT(UseChance(history, table, 0), 0.05);
}

TEST(RowHistoryTest, IgnoresRowsBeyondTheLimit) {
  RowHistory history(kExperts, kTopK);
  FrequencyTable table(RowHistory::kCases, 1.0f * kTopK / kExperts);
  const int rows = RowHistory::kMaxRows + 2;
  Forward forward{{}, {Phase::kDecode}, {}};
  for (int row = 0; row < rows; ++row) {
    forward.requests.push_back(row);
    const int32_t first = row < RowHistory::kMaxRows ? 0 : 4;
    forward.ids.insert(forward.ids.end(), {first, first + 1});
  }
  for (int step = 0; step < 60; ++step) Add(forward, &history, &table);
  EXPECT_GT(UseChance(history, table, 0), 0.9);
  EXPECT_LT(UseChance(history, table, 4), 0.5) << "used only by rows beyond the limit";
  // A new sequence replaces the one that was absent longest.
  Add({{0, 1}, {Phase::kDecode}, {0}}, &history, &table);
  Add({{4, 5}, {Phase::kDecode}, {1000}}, &history, &table);
  EXPECT_LT(UseChance(history, table, 0), 0.05);
}

}  // namespace
}  // namespace tidepool::moe
