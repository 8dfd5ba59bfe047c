// MakeWorkspace: the memory of a model's forward passes.
#ifndef TIDEPOOL_ENGINE_MODEL_WORKSPACE_H_
#define TIDEPOOL_ENGINE_MODEL_WORKSPACE_H_

#include <utility>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "kernels/allocate.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// Returns a workspace for batches within `limits`, in the model's memory. Returns
// RESOURCE_EXHAUSTED if it does not fit.
inline absl::StatusOr<kernels::Arena> MakeWorkspace(const Model& model, const BatchLimits& limits) {
  absl::StatusOr<kernels::Buffer> buffer = kernels::AllocateBuffer(
      model.WorkspaceBytes(limits),
      {.what = "the workspace",
       .remedy = "reduce --kv-memory or --prefill-chunk, or use a smaller model"},
      model.memory());
  if (!buffer.ok()) return buffer.status();
  return kernels::Arena(*std::move(buffer));
}

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_WORKSPACE_H_
