// The part of attention that one thread computes: it folds segments of KV into the results of a few
// query vectors.
#ifndef TIDEPOOL_KERNELS_CPU_ATTENTION_FOLD_H_
#define TIDEPOOL_KERNELS_CPU_ATTENTION_FOLD_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attend_bounds.h"
#include "kernels/backend.h"
#include "kernels/cpu/matmul.h"
#include "kernels/ops.h"

namespace tidepool::kernels {

// The arguments of one call of Attend.
struct AttendOp {
  const CpuContext& context;
  ConstMatrixView q;
  int heads;
  float scale;
  const KvLayer& layer;
  const ActivationBuffer& out;
  bool quantises;                 // whether finished folds are also written to `out` as int8
  float soft_cap;                 // 0: no soft-cap
  absl::Span<const float> sinks;  // [heads], or empty
  ConstMatrixView gate;           // as in AttendCall

  int HeadsPerKv() const { return heads / layer.kv_heads; }
  // Distance in floats between two folds, or between two parts of folds.
  int64_t FoldStride() const { return (layer.v_dim + kFoldUnit - 1) / kFoldUnit * kFoldUnit; }
};

// The folds (results so far) of some query vectors, or their results for one segment.
struct Folds {
  SoftmaxState* states;  // [vectors]; after a segment, sum < 0 if the vector sees no slot of it
  float* sums;           // [vectors][fold stride]
};

// The query vectors [first, first + count) of a span's rows, for one KV head.
struct FoldJob {
  const KvSpan* span = nullptr;
  int kv_head = 0;
  int count = 0;  // at most kFoldVectors
  int64_t first = 0;
  int64_t begin = 0;  // the visible segments are [begin, end)
  int64_t end = 0;
  int64_t blocks = 0;  // number of visible blocks
};
FoldJob MakeFoldJob(const AttendOp& op, const KvSpan& span, int kv_head, int64_t first);

// Scratch memory of one thread.
struct FoldScratch {
  float* keys;    // a block's keys as float32, [k_dim][kKvBlockTokens]
  float* values;  // a block's values as float32, [kKvBlockTokens][v_dim], and kFoldUnit more floats
  float* key_scales;  // scales of a block with kQ8_0, as float32
  float* value_scales;
  float* scores;  // [kFoldVectors][kKvSegmentTokens]
  Folds segment;
  Folds folds;
  // The next two belong to the current job. They are indexed by query vector.
  const float** queries;  // [kFoldVectors]
  SlotRange* visible;     // [kFoldVectors]
};
FoldScratch AllocateFoldScratch(const AttendOp& op, Arena* arena);
Folds AllocateFolds(const AttendOp& op, int64_t vectors, Arena* arena);

// Makes `job` the current job of `scratch`.
void BeginJob(const AttendOp& op, const FoldJob& job, const FoldScratch& scratch);

// Computes the results of `segment` for the current job, and writes them to `part`.
void ComputeSegment(const AttendOp& op, const FoldJob& job, int64_t segment,
                    const FoldScratch& scratch, const Folds& part);

void ClearFolds(const AttendOp& op, int vectors, const Folds& folds);

// Merges the results of a segment into the folds of the earlier segments.
void MergeSegment(const AttendOp& op, int vectors, const Folds& part, const Folds& folds);

// Writes the output rows of a job whose folds are complete.
void FinishFolds(const AttendOp& op, const FoldJob& job, const Folds& folds);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ATTENTION_FOLD_H_
