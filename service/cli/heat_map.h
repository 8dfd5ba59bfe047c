// A heat map of experts by layer: which lie in memory, and how much each is used, as lines of text.
#ifndef TIDEPOOL_SERVICE_CLI_HEAT_MAP_H_
#define TIDEPOOL_SERVICE_CLI_HEAT_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidepool::service {

// One row, before layers are put together.
struct HeatLayer {
  int number = 0;              // in the model
  int64_t hits = 0;            // for the share at the row's end; where there are no
  int64_t misses = 0;          // lookups, none is shown
  std::vector<bool> resident;  // [experts]
  std::vector<int64_t> uses;   // [experts]
};

enum class Colour : uint8_t { kOff, kOn };

struct HeatMapSpace {
  int columns = 80;
  int rows = 0;  // the heading's included; 0: as many as it takes
  Colour colour = Colour::kOff;
};

// A heading, then a line for each layer, or for each few layers where rows are short, with a
// character for each expert, or for each few where columns are. A cell shows whether most of its
// experts lie in memory, and their mean use beside that of the most used cell, in four steps: by
// character, so that colour adds nothing but haste. Empty where the space is too small to show
// anything, or there is nothing to show. Requires: as many experts in each layer.
std::string DrawHeatMap(const std::vector<HeatLayer>& layers, const HeatMapSpace& space);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_HEAT_MAP_H_
