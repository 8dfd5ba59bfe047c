// One thread's part of attention: folds a few query vectors over segments of KV.
#ifndef TIDEPOOL_KERNELS_CPU_ATTENTION_FOLD_H_
#define TIDEPOOL_KERNELS_CPU_ATTENTION_FOLD_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attend_bounds.h"
#include "kernels/backend.h"
#include "kernels/cpu/matmul.h"
#include "kernels/ops.h"

namespace tidepool::kernels {

// One call of Attend.
struct AttendOp {
  const CpuContext& context;
  ConstMatrixView q;
  int heads;
  float scale;
  const KvLayer& layer;
  const ActivationBuffer& out;
  bool quantises;                 // whether folds also write the int8 form of their part of `out`
  float soft_cap;                 // 0: none
  absl::Span<const float> sinks;  // [heads], or empty

  int HeadsPerKv() const { return heads / layer.kv_heads; }
  // Distance in floats between two folds, or two parts of folds.
  int64_t FoldStride() const { return (layer.v_dim + kFoldUnit - 1) / kFoldUnit * kFoldUnit; }
};

// Folds of query vectors, or the results of one segment for them.
struct Folds {
  SoftmaxState* states;  // [vectors]; in a segment, sum < 0 if the vector sees none of it
  float* sums;           // [vectors][fold stride]
};

// Query vectors [first, first + count) of a span's rows, for one KV head.
struct FoldJob {
  const KvSpan* span = nullptr;
  int kv_head = 0;
  int count = 0;  // at most kFoldVectors
  int64_t first = 0;
  int64_t begin = 0;  // visible segments, [begin, end)
  int64_t end = 0;
  int64_t blocks = 0;  // number of visible blocks
};
FoldJob MakeFoldJob(const AttendOp& op, const KvSpan& span, int kv_head, int64_t first);

// Scratch memory of one thread.
struct FoldScratch {
  float* keys;        // [k_dim][kKvBlockTokens]
  float* values;      // [kKvBlockTokens][v_dim], and kFoldUnit more
  float* key_scales;  // a block's kQ8_0 scales as float32
  float* value_scales;
  float* scores;  // [kFoldVectors][kKvSegmentTokens]
  Folds segment;
  Folds folds;
  // For the current job, by vector.
  const float** queries;  // [kFoldVectors]
  SlotRange* visible;     // [kFoldVectors]
};
FoldScratch AllocateFoldScratch(const AttendOp& op, Arena* arena);
Folds AllocateFolds(const AttendOp& op, int64_t vectors, Arena* arena);

// Makes `job` the current job.
void BeginJob(const AttendOp& op, const FoldJob& job, const FoldScratch& scratch);

// Computes the results of `segment` for the current job.
void ComputeSegment(const AttendOp& op, const FoldJob& job, int64_t segment,
                    const FoldScratch& scratch, const Folds& part);

void ClearFolds(const AttendOp& op, int vectors, const Folds& folds);

// Merges a segment's results into the fold of the earlier segments.
void MergeSegment(const AttendOp& op, int vectors, const Folds& part, const Folds& folds);

// Writes the job's rows of the output.
void FinishFolds(const AttendOp& op, const FoldJob& job, const Folds& folds);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ATTENTION_FOLD_H_
