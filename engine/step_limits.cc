#include "engine/step_limits.h"

namespace tidepool::engine {

StepLimits PickStepLimits(const EngineOptions& options,
                          const std::optional<moe::OffloadStats>& offload,
                          const StepCostModel& cost) {
  const int64_t most = options.limits.rows;
  if (!offload.has_value() || offload->slots >= offload->experts) {
    return {.prefill_chunk = options.prefill_chunk,
            .attention_depth = options.attention_depth,
            .mixed_rows = cost.MixedRows(most)};
  }
  // If a step reads most experts in any case, fewer rows would not make it shorter, but prompts
  // would need more steps.
  const int64_t missing_bytes = (offload->experts - offload->slots) * offload->record_bytes;
  return {.prefill_chunk = options.offload_prefill_chunk > 0 ? options.offload_prefill_chunk
                                                             : options.prefill_chunk,
          .mixed_rows = cost.MixedRowsOverReads(missing_bytes, most)};
}

}  // namespace tidepool::engine
