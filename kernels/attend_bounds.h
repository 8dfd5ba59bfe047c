// The sizes by which Attend divides its work. They limit the arena bytes of Attend:
// AttendScratchBytes (ops.h) adds them up, and kernels/cpu/attention.cc uses at most this sum.
#ifndef TIDEPOOL_KERNELS_ATTEND_BOUNDS_H_
#define TIDEPOOL_KERNELS_ATTEND_BOUNDS_H_

#include <cstdint>

namespace tidepool::kernels {

// The maximum number of query vectors of a fold. A fold is the result of attention so far for some
// query vectors. These belong to the heads that share one KV head, in one row or in several
// consecutive rows. Each block of keys and values is converted to float32 once for all vectors of
// the fold.
inline constexpr int kFoldVectors = 24;

// Folds and their parts are padded to a multiple of this number of floats, which is the widest
// vector of any ISA.
inline constexpr int kFoldUnit = 16;

// Maximum number of parts per thread that are stored before they are merged. A part is the result
// of one segment for one query vector of a fold.
inline constexpr int64_t kAttendPartsPerThread = 512;

// Number of tasks per thread when long jobs are split. A job is long if it costs more than two
// tasks. A task's cost is rounded down to an integer. In the worst case, tasks cost 2 - epsilon and
// are counted as 1, so that jobs of cost 3 are long.
inline constexpr int64_t kAttendTasksPerThread = 4;
inline constexpr int64_t kAttendLongFoldsPerThread = kFoldVectors * kAttendTasksPerThread * 2 / 3;

// Bytes of a job and of its first task.
inline constexpr int64_t kAttendJobBytes = 88;

// Memory per thread, as a multiple of the alignment, for its other tasks, for its long jobs, and
// for the padding of about 20 allocations.
inline constexpr int64_t kAttendSmallParts = 48;

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_ATTEND_BOUNDS_H_
