#include "service/cli/heat_map.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidepool::service {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<HeatLayer> Layers(int layers, int experts) {
  std::vector<HeatLayer> all;
  for (int i = 0; i < layers; ++i) {
    HeatLayer layer = {.number = i};
    for (int e = 0; e < experts; ++e) {
      layer.resident.push_back((i + e) % 2 == 0);
      layer.uses.push_back(e);
    }
    all.push_back(layer);
  }
  return all;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  EXPECT_EQ(lines.back(), "");
  lines.pop_back();
  return lines;
}

TEST(HeatMapTest, ACellPerExpertWhereThereIsRoom) {
  // The most used expert has 80 uses. Relative to it, the others have none, less than an eighth,
  // less than half, and more.
  std::vector<HeatLayer> layers = {
      {.number = 3,
       .hits = 97,
       .misses = 3,
       .resident = {true, true, true, true, false, false, false, false},
       .uses = {0, 9, 10, 40, 0, 9, 39, 80}},
      {.number = 5,
       .resident = {false, true, false, true, false, true, false, true},
       .uses = {0, 0, 0, 0, 0, 0, 0, 0}}};
  EXPECT_EQ(DrawHeatMap(layers, {.columns = 70}),
            "  layers    - + * # in memory, . : ! not: from unused to used most\n"
            "  3       -+*# .:!  97 %\n"
            "  5        - - - -\n");
}

TEST(HeatMapTest, ExpertsShareCellsAndLayersRows) {
  const std::string text = DrawHeatMap(Layers(48, 128), {.columns = 60, .rows = 13});
  const std::vector<std::string> lines = Lines(text);
  ASSERT_EQ(lines.size(), 13u);
  EXPECT_THAT(lines[1], HasSubstr("  0-3     "));
  EXPECT_THAT(lines[12], HasSubstr("  44-47   "));
  for (const std::string& line : lines) EXPECT_LE(line.size(), 60u) << line;
  // Each cell shows 3 of the 128 experts, on 44 columns.
  EXPECT_EQ(lines[1].size(), 10u + 43u);
  EXPECT_THAT(DrawHeatMap(Layers(48, 128), {.columns = 100}), HasSubstr("; 2 experts a cell"));
}

TEST(HeatMapTest, AnyWidthAndHeightIsKept) {
  for (const int experts : {1, 8, 60, 128, 512}) {
    for (const int count : {1, 3, 24, 61}) {
      for (int columns = 0; columns < 150; columns += 7) {
        for (int rows = 1; rows < 70; rows += 6) {
          std::vector<HeatLayer> layers = Layers(count, experts);
          for (HeatLayer& layer : layers) layer.hits = 5;
          const std::string text = DrawHeatMap(layers, {.columns = columns, .rows = rows});
          if (text.empty()) continue;
          const std::vector<std::string> lines = Lines(text);
          EXPECT_LE(lines.size(), static_cast<size_t>(rows));
          for (const std::string& line : lines) {
            EXPECT_LE(line.size(), static_cast<size_t>(columns)) << experts << " " << count;
            EXPECT_EQ(line.find('\033'), std::string::npos);
          }
        }
      }
    }
  }
}

TEST(HeatMapTest, NothingWhereItCannotBeRead) {
  EXPECT_EQ(DrawHeatMap({}, {.columns = 80}), "");
  EXPECT_EQ(DrawHeatMap(Layers(24, 64), {.columns = 31}), "");
  EXPECT_NE(DrawHeatMap(Layers(24, 64), {.columns = 32}), "");
  EXPECT_EQ(DrawHeatMap(Layers(24, 64), {.columns = 80, .rows = 4}), "");
  EXPECT_NE(DrawHeatMap(Layers(24, 64), {.columns = 80, .rows = 5}), "");
  EXPECT_NE(DrawHeatMap(Layers(2, 4), {.columns = 20, .rows = 3}), "");
}

// Colour does not change the characters.
TEST(HeatMapTest, ColourAddsNoCharacter) {
  const std::string plain = DrawHeatMap(Layers(4, 20), {.columns = 80});
  const std::string coloured = DrawHeatMap(Layers(4, 20), {.columns = 80, .colour = Colour::kOn});
  EXPECT_THAT(coloured, HasSubstr("\033["));
  std::string stripped;
  for (size_t i = 0; i < coloured.size(); ++i) {
    if (coloured[i] == '\033') {
      i = coloured.find('m', i);
    } else {
      stripped += coloured[i];
    }
  }
  EXPECT_EQ(stripped, plain);
  EXPECT_THAT(plain, Not(HasSubstr("\033")));
}

}  // namespace
}  // namespace tidepool::service
