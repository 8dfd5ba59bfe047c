// Describes which parts of a model are in which memory, as text and as JSON.
#ifndef TIDEPOOL_SERVICE_CLI_PLACEMENT_TEXT_H_
#define TIDEPOOL_SERVICE_CLI_PLACEMENT_TEXT_H_

#include <string>
#include <vector>

#include "engine/loading/memory_plan.h"
#include "service/cli/console.h"

namespace tidepool::service {

// One line for each kind of memory, such as "GPU memory: 2.1 GiB of weights, ...".
std::vector<std::string> PlacementLines(const engine::MemoryPlan& plan);

// Returns the same numbers as JSON. A number that is unknown or does not apply is null.
Json PlacementJson(const engine::MemoryPlan& plan);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_PLACEMENT_TEXT_H_
