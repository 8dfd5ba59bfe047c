// The inner loops of attention that each ISA implements. They are a part of KernelTable, and use
// plain pointers and sizes for the reason given in kernel_table.h.
#ifndef TIDEPOOL_KERNELS_CPU_ATTENTION_KERNELS_H_
#define TIDEPOOL_KERNELS_CPU_ATTENTION_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attend_bounds.h"
#include "kernels/backend.h"

namespace tidepool::kernels {

// Maximum number of query vectors in one pass over a block's keys or values.
inline constexpr int kMaxAttendVectors = 6;

// The stored keys or values of one KV head in one block. The scales of kQ8_0 are separate.
struct KvElements {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  // only for kQ8_0: the scales in the stored order (backend.h), converted to float32
  const float* scales = nullptr;
};

struct ScoreTile {
  KvElements keys;  // [k_dim][kKvBlockTokens]
  int k_dim = 0;
  int vectors = 0;                          // at most kMaxAttendVectors
  const float* queries[kMaxAttendVectors];  // [k_dim]
  float* scores[kMaxAttendVectors];         // [kKvBlockTokens]
};

// One block whose values are added to the sums of some query vectors. All these vectors see the
// same tokens [begin, end).
struct FoldTile {
  KvElements values;  // [kKvBlockTokens][v_dim]; readable up to a multiple of the vector size
  int v_dim = 0;
  int begin = 0;
  int end = 0;
  int vectors = 0;                         // at most kMaxAttendVectors
  const float* shares[kMaxAttendVectors];  // [kKvBlockTokens]
  float* sums[kMaxAttendVectors];          // [v_dim rounded up to kFoldUnit]
};

// The softmax of a query vector over some tokens: the maximum score, and the sum of exp(score -
// max).
struct SoftmaxState {
  float max;
  float sum;
};

struct AttentionKernels {
  int vectors;  // the number of query vectors per ScoreTile or FoldTile that is fastest
  int lanes;    // number of columns that `fold` reads at a time

  // Convert elements of a float type to float32, and float32 to a float type (rounded to nearest
  // even).
  void (*load)(DType dtype, const std::byte* source, int64_t n, float* out);
  void (*store)(DType dtype, const float* source, int64_t n, std::byte* out);
  // Convert a block's keys [k_dim][kKvBlockTokens] or values [kKvBlockTokens][v_dim] to float32,
  // exactly.
  void (*load_keys)(const KvElements& keys, int k_dim, float* out);
  void (*load_values)(const KvElements& values, int v_dim, float* out);

  // For all tokens of the block: scores[v][t] = the chain over d of q[v][d] * keys[d][t].
  void (*score)(const ScoreTile& tile);
  // Replaces the scores of the tokens [begin, end) of a segment by exp(score * scale - max). May
  // also overwrite scores before and after these, up to the next multiple of kFoldUnit. Requires:
  // begin < end.
  SoftmaxState (*softmax)(float* scores, int begin, int end, float scale);
  // Continues the sums as chains over t: sums[v][d] += shares[v][t] * values[t][d].
  void (*fold)(const FoldTile& tile);
  // Merges the softmax and the sums of a segment into the fold of the earlier segments: fold =
  // fma(sums, exp(segment's max - joint max), fold * exp(fold's max - joint max)).
  void (*merge)(const SoftmaxState& segment, const float* sums, int v_dim, SoftmaxState* state,
                float* fold);
};

// Returns the kernels for AVX-512 F, BW, VL and DQ, or null on other architectures.
const AttentionKernels* Avx512Attention();

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ATTENTION_KERNELS_H_
