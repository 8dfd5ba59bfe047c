// The inner loops of attention that each ISA implements: a part of KernelTable. They use plain
// pointers and sizes, as explained there.
#ifndef TIDEPOOL_KERNELS_CPU_ATTENTION_KERNELS_H_
#define TIDEPOOL_KERNELS_CPU_ATTENTION_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attend_bounds.h"
#include "kernels/backend.h"

namespace tidepool::kernels {

// Maximum number of query vectors per pass over a block's keys or values.
inline constexpr int kMaxAttendVectors = 6;

// Stored keys or values of one KV head in one block, without the scales of kQ8_0.
struct KvElements {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  const float* scales = nullptr;  // only for kQ8_0: as stored (backend.h), but converted to float32
};

struct ScoreTile {
  KvElements keys;  // [k_dim][kKvBlockTokens]
  int k_dim = 0;
  int vectors = 0;                          // at most kMaxAttendVectors
  const float* queries[kMaxAttendVectors];  // [k_dim]
  float* scores[kMaxAttendVectors];         // [kKvBlockTokens]
};

// One block's contribution to the sums of query vectors that see the same tokens [begin, end).
struct FoldTile {
  KvElements values;  // [kKvBlockTokens][v_dim]; readable up to whole vectors
  int v_dim = 0;
  int begin = 0;
  int end = 0;
  int vectors = 0;                         // at most kMaxAttendVectors
  const float* shares[kMaxAttendVectors];  // [kKvBlockTokens]
  float* sums[kMaxAttendVectors];          // [v_dim rounded up to kFoldUnit]
};

// A query vector's softmax over some tokens: the maximum score, and the sum of exp(score - max).
struct SoftmaxState {
  float max;
  float sum;
};

struct AttentionKernels {
  int vectors;  // fastest number of query vectors per ScoreTile or FoldTile
  int lanes;    // columns that fold reads at a time

  // Convert elements of a float type to float32, and back (to nearest even).
  void (*load)(DType dtype, const std::byte* source, int64_t n, float* out);
  void (*store)(DType dtype, const float* source, int64_t n, std::byte* out);
  // Converts a block's keys [k_dim][kKvBlockTokens] or values [kKvBlockTokens][v_dim] exactly to
  // float32.
  void (*load_keys)(const KvElements& keys, int k_dim, float* out);
  void (*load_values)(const KvElements& values, int v_dim, float* out);

  // scores[v][t] = chain over d of q[v][d] * keys[d][t], for all of the block's tokens.
  void (*score)(const ScoreTile& tile);
  // Replaces the scores of tokens [begin, end) of a segment by exp(score * scale - max). May also
  // write around them, up to the next multiple of kFoldUnit. Requires: begin < end.
  SoftmaxState (*softmax)(float* scores, int begin, int end, float scale);
  // Continues sums[v][d] as a chain over t of shares[v][t] * values[t][d].
  void (*fold)(const FoldTile& tile);
  // Merges a segment's softmax and sums into the fold of the earlier segments: fold = fma(sums,
  // exp(segment's max - joint max), fold * exp(fold's max - joint max)).
  void (*merge)(const SoftmaxState& segment, const float* sums, int v_dim, SoftmaxState* state,
                float* fold);
};

// The kernels for AVX-512 F, BW, VL and DQ. Null on other architectures.
const AttentionKernels* Avx512Attention();

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ATTENTION_KERNELS_H_
