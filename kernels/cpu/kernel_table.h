// The inner loops that each ISA has a form of, behind pointers: everything above them (tiling,
// threads, memory) exists once. Arguments are plain pointers and sizes, so that files compiled for
// one ISA include nothing whose functions another could pick up at link time.
#ifndef TIDEPOOL_KERNELS_CPU_KERNEL_TABLE_H_
#define TIDEPOOL_KERNELS_CPU_KERNEL_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace tidepool::kernels {

// A tile of a product: up to kTileRows rows of x times up to kTilePanels panels of the weight,
// whose 32 output columns are also one int8 block of the next activation.
inline constexpr int kTileRows = 24;
inline constexpr int kTilePanels = 4;
inline constexpr int kTileCols = kTilePanels * kPanelRows;

// Query vectors that share one pass over a KV segment's keys, and over its values.
inline constexpr int kAttendVectors = 3;

struct Tile {
  DType dtype = DType::kF32;
  const std::byte* panels = nullptr;  // the first panel
  int64_t panel_bytes = 0;
  int panel_count = 0;
  int64_t cols = 0;
  int rows = 0;
  const float* values[kTileRows];   // float products read this,
  const int8_t* quants[kTileRows];  // integer products these
  const float* scales[kTileRows];
  const float* sums[kTileRows];
  const int16_t* half_sums[kTileRows];
  float* out = nullptr;  // [rows][kTileCols]
};

// One segment's part in the fold of `vectors` query vectors that see the same tokens [begin, end).
struct FoldTile {
  int vectors = 0;
  int begin = 0;
  int end = 0;
  const float* values = nullptr;  // [kKvBlockTokens][v_dim], with 8 floats readable past the end
  int v_dim = 0;
  const float* shares[kAttendVectors];  // [kKvBlockTokens]
  float* folds[kAttendVectors];         // [v_dim rounded up to 8]
  float keep[kAttendVectors];           // fold = fold * keep + (segment's sum) * take
  float take[kAttendVectors];
};

// A query vector's online softmax: the largest score so far and the sum of exp(score - max). Adding
// a segment to it also says how to add the segment's values: fold = fold * keep + (their sum) *
// take.
struct SoftmaxState {
  float max;
  float sum;
  float keep;
  float take;
};

struct KernelTable {
  const char* name;

  // Integer product of int8 activations and a quantised weight (kFast).
  void (*multiply_int8)(const Tile& tile);
  // Float product, the weight dequantised on the fly.
  void (*multiply_float)(const Tile& tile);
  // Int8 form of `blocks` blocks of 32, as ops.h defines it.
  void (*quantize)(const float* x, int64_t blocks, int8_t* quants, float* scales, float* sums,
                   int16_t* half_sums);
  // out = x / rms(x) * weight; out may be x.
  void (*norm)(const float* x, const float* weight, int64_t n, float eps, float* out);
  // out = silu(gate) * up; out may be either.
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);
  // out += x, element by element.
  void (*add)(const float* x, int64_t n, float* out);
  // out = fma(scale, x, out).
  void (*add_scaled)(const float* x, float scale, int64_t n, float* out);
  // shares = softmax(logits). A NaN among the logits makes every share NaN.
  void (*softmax)(const float* logits, int64_t n, float* shares);
  // Rotates `pairs` pairs at the start of each of `heads` heads.
  void (*rope)(float* row, int heads, int head_dim, int pairs, RopeStyle style, const float* cos,
               const float* sin);
  // n elements of type F32, F16 or BF16 to float32, and back (to nearest even).
  void (*load_kv)(DType dtype, const std::byte* source, int64_t n, float* out);
  void (*store_kv)(DType dtype, const float* source, int64_t n, std::byte* out);
  // scores[v][t] = chain over d of q[v][d] * keys[d][t], for all kKvBlockTokens tokens.
  void (*score)(const float* const* q, int vectors, const float* keys, int k_dim,
                float* const* scores);
  // Turns the scores of tokens [begin, end) into exp(score * scale - segment's max), the others
  // into zero, and adds that segment to `state`. Requires: begin < end.
  void (*segment_softmax)(float* scores, int begin, int end, float scale, SoftmaxState* state);
  void (*fold)(const FoldTile& tile);
};

const KernelTable& PortableKernels();

// Null where the build's architecture has none. isa.h says which of them the machine runs.
const KernelTable* Avx2Kernels();
const KernelTable* Avx512Kernels();
const KernelTable* Avx512VnniKernels();

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_KERNEL_TABLE_H_
