// Divides attention into tasks, one for each block of threads.
//
// A task computes a few query vectors of one span and KV head over a range of segments. If there
// are few tasks (as in decoding), the segments of a span are divided among several tasks. Then each
// task stores the result of each segment (a part), and another kernel merges the parts of a query
// vector in order. So the bits are the same as with one task. The memory of parts is limited, so
// long spans need several rounds.
#ifndef TIDEPOOL_KERNELS_CUDA_ATTENTION_PLAN_CU_H_
#define TIDEPOOL_KERNELS_CUDA_ATTENTION_PLAN_CU_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tidepool::kernels::cuda {

// Attention of some query vectors of a span, [first, first + count), to the segments [begin, end)
// of one KV head. Only the vectors of this KV head are numbered, row by row. So vector i belongs to
// row i / (heads per KV head) of the span.
struct AttendTask {
  int32_t span;
  int32_t kv_head;
  int32_t first;
  int32_t count;
  int32_t begin;
  int32_t end;
};

// A KvSpan, for kernels.
struct AttendSpan {
  int64_t first_row;
  int64_t rows;
  int64_t first_slot;
  int64_t window;
  int64_t table;    // block b of the sequence is tables[table + b]
  int64_t segment;  // the first segment that the span sees
  // If the span's segments are divided: the number of its first vector among the vectors of all
  // divided spans. Otherwise -1.
  int64_t vectors;
  bool causal;
};

// Tasks are computed by kernels for a fixed number of query vectors each.
inline constexpr int kVectorClasses = 4;
inline constexpr int kClassVectors[kVectorClasses] = {4, 8, 16, 32};

struct AttendLimits {
  int64_t tasks = 1;      // number of tasks that keep the device busy
  int64_t max_parts = 1;  // number of parts that fit in memory
  int max_vectors = 32;   // maximum vectors of a task; one of kClassVectors
};

// Round r computes the segments [r * round_segments, (r + 1) * round_segments) of each divided
// span, counted from the span's first one. The part of segment i of a round is number i *
// split_vectors + AttendSpan::vectors + the vector's number in the span, row by row and head by
// head.
struct AttendPlan {
  std::vector<AttendSpan> spans;
  std::vector<int32_t> tables;
  std::vector<int32_t> span_of_row;  // -1: no span
  int64_t covered_rows = 0;
  int64_t split_vectors = 0;   // query vectors whose segments are divided
  bool has_whole = false;      // whether some spans are not divided
  int64_t round_segments = 0;  // 0 if no span is divided
  int64_t rounds = 1;
  int64_t step = 1;  // number of segments of a task of a divided span
};

// Requires: the call is valid (CheckAttend).
AttendPlan PlanAttend(const AttendCall& call, const AttendLimits& limits);

// Returns the tasks of one round and vector class, the longest first. Tasks that are not divided
// are in round 0.
std::vector<AttendTask> TasksOf(const AttendCall& call, const AttendPlan& plan,
                                const AttendLimits& limits, int64_t round, int vector_class);

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_ATTENTION_PLAN_CU_H_
