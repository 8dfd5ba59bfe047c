// The inner loops of attention that each ISA has a form of: a part of KernelTable. Plain pointers
// and sizes, as there.
#ifndef TIDEPOOL_KERNELS_CPU_ATTENTION_KERNELS_H_
#define TIDEPOOL_KERNELS_CPU_ATTENTION_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attend_bounds.h"
#include "kernels/backend.h"

namespace tidepool::kernels {

// The most query vectors that share one pass over a block's keys, and over its values.
inline constexpr int kMaxAttendVectors = 6;

// Stored keys or values of one KV head in one block, without kQ8_0's own scales.
struct KvElements {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  const float* scales = nullptr;  // kQ8_0: as stored (backend.h), but float32
};

struct ScoreTile {
  KvElements keys;  // [k_dim][kKvBlockTokens]
  int k_dim = 0;
  int vectors = 0;                          // at most kMaxAttendVectors
  const float* queries[kMaxAttendVectors];  // [k_dim]
  float* scores[kMaxAttendVectors];         // [kKvBlockTokens]
};

// One block's part in the sums of query vectors that see the same of its tokens, [begin, end).
struct FoldTile {
  KvElements values;  // [kKvBlockTokens][v_dim]; readable as far as whole vectors reach
  int v_dim = 0;
  int begin = 0;
  int end = 0;
  int vectors = 0;                         // at most kMaxAttendVectors
  const float* shares[kMaxAttendVectors];  // [kKvBlockTokens]
  float* sums[kMaxAttendVectors];          // [v_dim rounded up to kFoldUnit]
};

// A query vector's softmax over some tokens: the largest score, and the sum of exp(score - max).
struct SoftmaxState {
  float max;
  float sum;
};

struct AttentionKernels {
  int vectors;  // query vectors of a ScoreTile or FoldTile at which the form is fastest
  int lanes;    // columns that fold reads at once

  // Elements of a float type to float32, and back (to nearest even).
  void (*load)(DType dtype, const std::byte* source, int64_t n, float* out);
  void (*store)(DType dtype, const float* source, int64_t n, std::byte* out);
  // A block's keys [k_dim][kKvBlockTokens] or values [kKvBlockTokens][v_dim] as float32, exactly.
  void (*load_keys)(const KvElements& keys, int k_dim, float* out);
  void (*load_values)(const KvElements& values, int v_dim, float* out);

  // scores[v][t] = chain over d of q[v][d] * keys[d][t], for all of the block's tokens.
  void (*score)(const ScoreTile& tile);
  // Turns the scores of tokens [begin, end) of a segment into exp(score * scale - max), and may
  // write to those around them, up to the next multiple of kFoldUnit. Requires: begin < end.
  SoftmaxState (*softmax)(float* scores, int begin, int end, float scale);
  // Continues sums[v][d] as a chain over t of shares[v][t] * values[t][d].
  void (*fold)(const FoldTile& tile);
  // Adds a segment's softmax and sums to the fold of those before it:
  // fold = fma(sums, exp(segment's max - joint max), fold * exp(fold's max - joint max)).
  void (*merge)(const SoftmaxState& segment, const float* sums, int v_dim, SoftmaxState* state,
                float* fold);
};

// The form for AVX-512 F, BW, VL and DQ; null where the build's architecture has none.
const AttentionKernels* Avx512Attention();

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ATTENTION_KERNELS_H_
