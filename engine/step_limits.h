// How many rows steps may have, by what is resident and by what steps cost.
#ifndef TIDEPOOL_ENGINE_STEP_LIMITS_H_
#define TIDEPOOL_ENGINE_STEP_LIMITS_H_

#include <optional>

#include "engine/engine_options.h"
#include "engine/scheduler/running_sequences.h"
#include "engine/scheduler/step_cost_model.h"
#include "moe/offload_stats.h"

namespace tidepool::engine {

// Pure. While experts are missing from memory, prompts get the chunk of offload_prefill_chunk, as
// long at every depth, and a step with decodes may read as long as it computes.
StepLimits PickStepLimits(const EngineOptions& options,
                          const std::optional<moe::OffloadStats>& offload,
                          const StepCostModel& cost);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_STEP_LIMITS_H_
