#include "service/cli/heat_map.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {
namespace {

constexpr int kLabel = 10;     // "  12-13   "
constexpr int kRate = 6;       // "  97 %"
constexpr int kMinCells = 16;  // a row with fewer cells is useless
constexpr int kMinRows = 4;

constexpr int kSteps = 4;
constexpr absl::string_view kInMemory = "-+*#";
constexpr absl::string_view kAway = " .:!";
// One colour per step: dim to bold green for experts in memory, dim to bold red for the others.
constexpr absl::string_view kInMemoryColours[kSteps] = {"2;32", "32", "1;32", "1;92"};
constexpr absl::string_view kAwayColours[kSteps] = {"0", "2", "33", "1;31"};

struct Cell {
  bool resident = false;
  double use = 0;  // mean number of uses of its experts
};

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

// How many layers share a row, and how many experts share a cell.
struct Grouping {
  int layers = 1;
  int experts = 1;
};

Cell CellOf(const std::vector<HeatLayer>& layers, size_t first_layer, size_t first_expert,
            const Grouping& grouping) {
  const size_t last_layer = std::min(layers.size(), first_layer + grouping.layers);
  const size_t last_expert = std::min(layers[0].resident.size(), first_expert + grouping.experts);
  int64_t resident = 0;
  int64_t uses = 0;
  int64_t count = 0;
  for (size_t layer = first_layer; layer < last_layer; ++layer) {
    for (size_t expert = first_expert; expert < last_expert; ++expert, ++count) {
      resident += layers[layer].resident[expert];
      uses += layers[layer].uses[expert];
    }
  }
  return {2 * resident >= count, static_cast<double>(uses) / static_cast<double>(count)};
}

int StepOf(double use, double most) {
  if (use <= 0) return 0;
  const double share = use / most;
  return share < 0.125 ? 1 : share < 0.5 ? 2 : 3;
}

// Emits a colour code only where the colour changes, to keep the row short.
std::string Row(const std::vector<Cell>& cells, double most, Colour colour) {
  std::string row;
  absl::string_view before;
  for (const Cell& cell : cells) {
    const int step = StepOf(cell.use, most);
    const absl::string_view now = cell.resident ? kInMemoryColours[step] : kAwayColours[step];
    if (colour == Colour::kOn && now != before) {
      absl::StrAppend(&row, "\033[0;", now, "m");
      before = now;
    }
    row += (cell.resident ? kInMemory : kAway)[step];
  }
  if (colour == Colour::kOn) absl::StrAppend(&row, "\033[0m");
  return row;
}

std::string RateOf(const std::vector<HeatLayer>& layers, size_t first, size_t last) {
  int64_t hits = 0;
  int64_t lookups = 0;
  for (size_t i = first; i < last; ++i) {
    hits += layers[i].hits;
    lookups += layers[i].hits + layers[i].misses;
  }
  if (lookups == 0) return "";
  return absl::StrFormat("%4.0f %%",
                         100.0 * static_cast<double>(hits) / static_cast<double>(lookups));
}

}  // namespace

std::string DrawHeatMap(const std::vector<HeatLayer>& layers, const HeatMapSpace& space) {
  if (layers.empty() || layers[0].resident.empty()) return "";
  const int count = static_cast<int>(layers.size());
  const int experts = static_cast<int>(layers[0].resident.size());
  const int width = space.columns - kLabel - kRate;
  const int height = space.rows == 0 ? count : space.rows - 1;
  if (width < std::min(kMinCells, experts) || height < std::min(kMinRows, count)) return "";
  const Grouping grouping = {CeilDiv(count, height), CeilDiv(experts, width)};

  std::vector<std::vector<Cell>> rows;
  double most = 0;
  for (int layer = 0; layer < count; layer += grouping.layers) {
    std::vector<Cell>& row = rows.emplace_back();
    for (int expert = 0; expert < experts; expert += grouping.experts) {
      row.push_back(CellOf(layers, layer, expert, grouping));
      most = std::max(most, row.back().use);
    }
  }
  std::string text = "  layers    - + * # in memory, . : ! not: from unused to used most";
  if (grouping.experts > 1) absl::StrAppend(&text, "; ", grouping.experts, " experts a cell");
  if (static_cast<int>(text.size()) > space.columns) text.resize(space.columns);
  text += "\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t first = i * grouping.layers;
    const size_t last = std::min(layers.size(), first + grouping.layers);
    std::string label = absl::StrCat("  ", layers[first].number);
    if (last > first + 1) absl::StrAppend(&label, "-", layers[last - 1].number);
    absl::StrAppendFormat(&text, "%-*s%s%s\n", kLabel, label, Row(rows[i], most, space.colour),
                          RateOf(layers, first, last));
  }
  return text;
}

}  // namespace tidepool::service
