// Computes the limits for the rows of steps from the resident experts and the measured cost of
// steps.
#ifndef TIDEPOOL_ENGINE_STEP_LIMITS_H_
#define TIDEPOOL_ENGINE_STEP_LIMITS_H_

#include <optional>

#include "engine/engine_options.h"
#include "engine/scheduler/running_sequences.h"
#include "engine/scheduler/step_cost_model.h"
#include "moe/offload_stats.h"

namespace tidepool::engine {

// Pure. If some experts are not in memory, the prefill chunk is offload_prefill_chunk at every
// depth, and the computation of a step with decodes may take as long as the step's reads.
StepLimits PickStepLimits(const EngineOptions& options,
                          const std::optional<moe::OffloadStats>& offload,
                          const StepCostModel& cost);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_STEP_LIMITS_H_
