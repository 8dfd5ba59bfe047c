// Draws a heat map of experts by layer as lines of text. The map shows which experts are in memory,
// and how often each is used.
#ifndef TIDEPOOL_SERVICE_CLI_HEAT_MAP_H_
#define TIDEPOOL_SERVICE_CLI_HEAT_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidepool::service {

// One layer of the map.
struct HeatLayer {
  int number = 0;              // layer number in the model
  int64_t hits = 0;            // for the hit rate at the end of the row
  int64_t misses = 0;          // without hits and misses, the row has no hit rate
  std::vector<bool> resident;  // [experts]
  std::vector<int64_t> uses;   // [experts]
};

enum class Colour : uint8_t { kOff, kOn };

struct HeatMapSpace {
  int columns = 80;
  int rows = 0;  // including the heading; 0: no limit
  Colour colour = Colour::kOff;
};

// Draws a heading and one line per layer, with one character per expert. If there are too few rows,
// a line represents several layers. If there are too few columns, a character represents several
// experts. A character shows whether most of its experts are in memory. It also shows their mean
// use in four steps, relative to the highest mean use in the map. Colours show nothing that the
// characters do not show. Returns an empty string if the space is too small or there is nothing to
// show. Requires: every layer has the same number of experts.
std::string DrawHeatMap(const std::vector<HeatLayer>& layers, const HeatMapSpace& space);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_HEAT_MAP_H_
