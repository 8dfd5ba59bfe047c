// What bounds the arena bytes of Attend: the sizes that its work is cut by. AttendBytes (ops.h)
// adds them up, for whoever sizes an arena; kernels/cpu/attention.cc lives within them.
#ifndef TIDEPOOL_KERNELS_ATTEND_BOUNDS_H_
#define TIDEPOOL_KERNELS_ATTEND_BOUNDS_H_

#include <cstdint>

namespace tidepool::kernels {

// Query vectors (a row's heads that share a KV head, row by row) that are folded together: each
// block of keys and values is converted to float32 once for all of them.
inline constexpr int kFoldVectors = 24;

// What folds and parts of them are rounded up to, in floats: the widest vector of any form.
inline constexpr int kFoldUnit = 16;

// Parts of folds that are kept at most, per thread, before they are merged.
inline constexpr int64_t kAttendPartsPerThread = 512;

// Tasks per thread that long jobs are cut for. A job is long where it costs more than two tasks,
// and a task's cost is rounded down to a whole number: at worst, jobs of 3 are long where tasks
// cost 2 - epsilon and count as 1.
inline constexpr int64_t kAttendTasksPerThread = 4;
inline constexpr int64_t kAttendLongFoldsPerThread = kFoldVectors * kAttendTasksPerThread * 2 / 3;

// A job and its first task, in bytes.
inline constexpr int64_t kAttendJobBytes = 88;

// Of a thread, in multiples of the alignment: its further tasks, its long jobs, and what some 20
// allocations are rounded up by.
inline constexpr int64_t kAttendSmallParts = 48;

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_ATTEND_BOUNDS_H_
