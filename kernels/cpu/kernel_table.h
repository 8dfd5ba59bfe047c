// KernelTable: function pointers to the inner loops that each ISA implements. The code that calls
// them (tiling, threads, memory) is the same for all ISAs. Arguments are plain pointers and sizes,
// so that files compiled for one ISA need no inline functions of other headers. If they had inline
// functions, the linker could use their code for other ISAs.
#ifndef TIDEPOOL_KERNELS_CPU_KERNEL_TABLE_H_
#define TIDEPOOL_KERNELS_CPU_KERNEL_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/recurrent_kernels.h"

namespace tidepool::kernels {

// A tile of a product: up to kTileRows rows of x, multiplied with up to kTilePanels panels of the
// weight. The 32 output columns of a tile are one int8 block of the next activation.
inline constexpr int kTileRows = 24;
inline constexpr int kTilePanels = 4;
inline constexpr int kTileCols = kTilePanels * kPanelRows;

struct Tile {
  DType dtype = DType::kF32;
  const std::byte* panels = nullptr;  // start of the first panel
  int64_t panel_bytes = 0;
  int panel_count = 0;
  int64_t cols = 0;
  int rows = 0;
  const float* values[kTileRows];   // for float products
  const int8_t* quants[kTileRows];  // this and the next three are for integer products
  const float* scales[kTileRows];
  const float* sums[kTileRows];
  const int16_t* half_sums[kTileRows];
  float* out = nullptr;  // [rows][kTileCols]
};

// Where to write the int8 form of some blocks (see Activation in backend.h).
struct Int8Blocks {
  int8_t* quants;
  float* scales;
  float* sums;
  int16_t* half_sums;
};

// A rotation of the first `pairs` pairs of elements in each head of a row.
struct RowRotation {
  int heads = 0;
  int head_dim = 0;
  int pairs = 0;
  RopeStyle style = RopeStyle::kInterleaved;
  const float* cos = nullptr;  // [pairs]
  const float* sin = nullptr;
};

// out = glu(gate, up) for n elements. There is one function for each GluForm. `out` may be the same
// as either input.
using GluFunction = void (*)(const float* gate, const float* up, int64_t n, const Glu& glu,
                             float* out);
inline constexpr int kGluForms = 4;

struct KernelTable {
  const char* name;

  // Multiplies int8 activations with a quantised weight as integers (kFast).
  void (*multiply_int8)(const Tile& tile);
  // Multiplies floats; the weight is dequantised block by block.
  void (*multiply_float)(const Tile& tile);
  // Computes the int8 form of `blocks` blocks of 32 elements, as ops.h defines it.
  void (*quantize)(const float* x, int64_t blocks, const Int8Blocks& out);
  // out = x / rms(x) * weight. `out` may be x.
  void (*norm)(const float* x, const float* weight, int64_t n, float eps, float* out);
  GluFunction glu[kGluForms];  // indexed by GluForm
  // out += x, element by element.
  void (*add)(const float* x, int64_t n, float* out);
  // out = fma(scale, x, out).
  void (*add_scaled)(const float* x, float scale, int64_t n, float* out);
  // x *= scale.
  void (*scale)(float* x, float scale, int64_t n);
  // Applies math.h's SoftCap to each x.
  void (*soft_cap)(float* x, int64_t n, float factor, float cap);
  // shares = softmax(logits). A NaN among the logits makes every share NaN.
  void (*softmax)(const float* logits, int64_t n, float* shares);
  // out = sigmoid(x).
  void (*sigmoid)(const float* x, int64_t n, float* out);
  void (*rope)(float* row, const RowRotation& rotation);
  AttentionKernels attention;
  RecurrentKernels recurrent;
};

// AVX-512 F, BW, VL and DQ replacements for functions of AVX2. attention_kernels.h has those for
// attention.
struct Avx512Forms {
  decltype(KernelTable::multiply_int8) multiply_int8;
  decltype(KernelTable::multiply_float) multiply_float;
  decltype(KernelTable::quantize) quantize;
  GluFunction swiglu;
  decltype(RecurrentKernels::advance_delta) advance_delta;
  int delta_tiles;
};

// Returns the tables; null on other architectures. isa.h chooses the table for the machine. These
// functions may be called on any machine, because the tables are constant data: no code for a newer
// ISA runs to create them.
const KernelTable& PortableKernels();
const KernelTable* Avx2Kernels();
const Avx512Forms* OwnAvx512Forms();
// Returns the VNNI replacement for AVX-512's multiply_int8.
decltype(KernelTable::multiply_int8) VnniMultiplyInt8();

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_KERNEL_TABLE_H_
