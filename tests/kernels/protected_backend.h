// A KernelBackend for tests that behaves like that of a device, and has the CPU's bits:
//  - Host code that touches its memory ends the process (ProtectedMemory).
//  - An op that gets an operand in other memory, or in freed memory, ends the process.
//  - Ops and copies are queued with copies of their arguments, and run late: after a random number
//    of later calls, but at the latest in CopyOut or Sync.
//  - Copies that run beside ops (BeginCopyIn) end in any order: often late, and sometimes before
//    ops that were called after their mark. A copy runs at the latest when an op after its
//    AwaitCopy runs, or after several calls of CopyTime. Sync and CopyOut do not wait for these
//    copies.
//  - A copy ends the process if its source is not pinned, or if the source changes or is unpinned
//    before the copy ends.
//  - An op ends the process if an operand is the target of a copy that was not awaited.
//  - Host memory that is still pinned when the backend is destroyed ends the process.
//
// The memory of an Activation comes from the caller's arena at once; its data is computed later.
//
//   const auto backend = MakeProtectedBackend({.threads = 2, .seed = 7});
//   const Buffer x(bytes, backend->memory());
#ifndef TIDEPOOL_TESTS_KERNELS_PROTECTED_BACKEND_H_
#define TIDEPOOL_TESTS_KERNELS_PROTECTED_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/backend.h"

namespace tidepool::kernels {

struct ProtectedOptions {
  int threads = 1;
  Precision precision = Precision::kFast;
  uint64_t seed = 1;  // for the random choice of when queued ops run
  // The number of the op or copy that fails, counted from 0 in the order of the calls. Neither this
  // op nor later ones run. -1: none fails.
  int64_t failing_op = -1;
  CopyTicket failing_copy = 0;     // the copy that fails when it runs; 0: none
  size_t memory_bytes = SIZE_MAX;  // of all allocations together
  size_t pinned_bytes = SIZE_MAX;  // of all pinned host memory together
};

// The backend must outlive all memory that its memory() allocated.
std::unique_ptr<KernelBackend> MakeProtectedBackend(const ProtectedOptions& options);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_TESTS_KERNELS_PROTECTED_BACKEND_H_
