// AllocateBuffer: allocates memory whose size depends on a model or on options. Such memory may not
// fit.
#ifndef TIDEPOOL_KERNELS_ALLOCATE_H_
#define TIDEPOOL_KERNELS_ALLOCATE_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/memory.h"
#include "kernels/tensor.h"

namespace tidepool::kernels {

// Both texts become parts of the error message.
struct AllocationPurpose {
  absl::string_view what;    // such as "the KV cache"
  absl::string_view remedy;  // such as "reduce --kv-memory"
};

// Returns RESOURCE_EXHAUSTED if `memory` has no `bytes` bytes (above 0) left. The error names what
// did not fit, the sizes and the remedy.
absl::StatusOr<Buffer> AllocateBuffer(size_t bytes, const AllocationPurpose& purpose,
                                      Memory* memory);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_ALLOCATE_H_
