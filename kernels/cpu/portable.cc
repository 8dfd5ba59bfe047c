// The kernels for any CPU, in plain C++. All other kernels must give the same bits.
#include "kernels/cpu/inner.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/panel.h"
#include "kernels/panel_block.h"

namespace tidepool::kernels {
namespace {

// Large because a vector type has one member per operation (inner.h).
struct PortableVector {
  struct F {
    float lane[kLanes];
  };

  template <typename Make>
  static F Each(Make make) {
    F result;
    for (int i = 0; i < kLanes; ++i) result.lane[i] = make(i);
    return result;
  }
  static F Load(const float* x) {
    return Each([&](int i) { return x[i]; });
  }
  static void Store(float* out, const F& v) {
    for (int i = 0; i < kLanes; ++i) out[i] = v.lane[i];
  }
  static F Set(float x) {
    return Each([&](int) { return x; });
  }
  static F Add(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static F Sub(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static F Mul(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F Div(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  static F Fma(const F& a, const F& b, const F& c) {
    return Each([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static F Max(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F Min(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F Abs(const F& a) {
    return Each([&](int i) { return __builtin_fabsf(a.lane[i]); });
  }
  static F CopySign(const F& magnitude, const F& sign) {
    return Each([&](int i) { return __builtin_copysignf(magnitude.lane[i], sign.lane[i]); });
  }
  static F SelectLess(const F& a, const F& b, const F& yes, const F& no) {
    return Each([&](int i) { return a.lane[i] < b.lane[i] ? yes.lane[i] : no.lane[i]; });
  }
  static float MaxLanes(const F& a) {
    float max = a.lane[0];
    for (int i = 1; i < kLanes; ++i) max = a.lane[i] > max ? a.lane[i] : max;
    return max;
  }
  static float SumLanes(const F& a) {
    float s[4];
    for (int i = 0; i < 4; ++i) s[i] = a.lane[i] + a.lane[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
  }
  static F Negate(const F& a) {
    return Each([&](int i) { return -a.lane[i]; });
  }
  static F Exp(const F& a) {
    return Each([&](int i) { return kernels::Exp(a.lane[i]); });
  }
  static F ExpBelowZero(const F& a) { return Exp(a); }
  static F LoadI8(const int8_t* x) {
    return Each([&](int i) { return static_cast<float>(x[i]); });
  }
  static F LoadF16(const uint16_t* x) {
    return Each([&](int i) { return F16ToF32(x[i]); });
  }
  static F LoadBf16(const uint16_t* x) {
    return Each([&](int i) { return BF16ToF32(x[i]); });
  }
  static void StoreF16(uint16_t* out, const F& v) {
    for (int i = 0; i < kLanes; ++i) out[i] = F32ToF16(v.lane[i]);
  }
  static void StoreBf16(uint16_t* out, const F& v) {
    for (int i = 0; i < kLanes; ++i) out[i] = F32ToBF16(v.lane[i]);
  }
  static void RotatePairs(float* x, const float* cos, const float* sin) {
    for (int i = 0; i < kLanes / 2; ++i) {
      Inner<PortableVector>::RotateScalar(x + 2 * i, x + 2 * i + 1, cos[i], sin[i]);
    }
  }

  // Dequantises one block of a quantised panel to [32][8] floats.
  static void UnpackQuants(DType dtype, const std::byte* panel, int64_t b, float* out) {
    VisitQuantType(dtype, [&](auto type) {
      const PanelBlock block = PanelBlock::At<type()>(panel, b);
      for (int r = 0; r < kPanelRows; ++r) {
        const BlockScales scales = ScalesAt<type()>(block, r);
        for (int k = 0; k < kQuantBlock; ++k) {
          out[k * kLanes + r] = ValueAt<type()>(block, scales, r, k);
        }
      }
    });
  }
};

// A vector of four floats. GCC and Clang vectorise it on any architecture.
using Quad = float __attribute__((vector_size(16)));

// One unpacked block of a panel: its integers, as floats, and the scales of its rows.
template <DType kType>
struct UnpackedBlock {
  UnpackedBlock(const std::byte* panel, int64_t b) {
    const PanelBlock block = PanelBlock::At<kType>(panel, b);
    for (int k = 0; k < kQuantBlock; ++k) {
      for (int r = 0; r < kPanelRows; ++r) {
        integers[k][r / 4][r % 4] = static_cast<float>(QuantAt<kType>(block, r, k));
      }
    }
    for (int r = 0; r < kPanelRows; ++r) scales[r] = ScalesAt<kType>(block, r);
  }
  Quad integers[kQuantBlock][kPanelRows / 4];
  BlockScales scales[kPanelRows];
};

// For one row of x, adds the products with block b, as ops.h defines them, to the sums of the
// panel's rows. All integers are below 2^24, so their float arithmetic is exact in any order.
template <DType kType>
void AddBlock(const Tile& tile, const UnpackedBlock<kType>& block, int row, int64_t b,
              float* sums) {
  const int8_t* x = tile.quants[row] + b * kQuantBlock;
  const int16_t* x_sums = tile.half_sums[row] + 2 * b;
  const float dx = tile.scales[row][b];
  Quad dots[2][kPanelRows / 4] = {};  // for each half of the block
  for (int k = 0; k < kQuantBlock; ++k) {
    const float value = x[k];
    for (int i = 0; i < kPanelRows / 4; ++i) {
      dots[k / kHalfBlock][i] += block.integers[k][i] * value;
    }
  }
  for (int r = 0; r < kPanelRows; ++r) {
    const BlockScales& s = block.scales[r];
    const float dot = static_cast<float>(s.scale[0]) * dots[0][r / 4][r % 4] +
                      static_cast<float>(s.scale[1]) * dots[1][r / 4][r % 4];
    sums[r] = __builtin_fmaf(s.step * dx, dot, sums[r]);
    if constexpr (FormatOf(kType).has_min && FormatOf(kType).halves) {
      const int weighted = s.min[0] * x_sums[0] + s.min[1] * x_sums[1];
      sums[r] = __builtin_fmaf(s.min_step * dx, static_cast<float>(weighted), sums[r]);
    } else if constexpr (FormatOf(kType).has_min) {
      sums[r] = __builtin_fmaf(s.min_step, tile.sums[row][b], sums[r]);
    }
  }
}

template <DType kType>
void MultiplyPanel(const Tile& tile, int p) {
  float* out = tile.out + p * kPanelRows;
  for (int i = 0; i < tile.rows; ++i) {
    for (int r = 0; r < kPanelRows; ++r) out[i * kTileCols + r] = 0;
  }
  for (int64_t b = 0; b < tile.cols / kQuantBlock; ++b) {
    const UnpackedBlock<kType> block(tile.panels + p * tile.panel_bytes, b);
    for (int i = 0; i < tile.rows; ++i) AddBlock(tile, block, i, b, out + i * kTileCols);
  }
}

void MultiplyInt8(const Tile& tile) {
  VisitQuantType(tile.dtype, [&](auto type) {
    for (int p = 0; p < tile.panel_count; ++p) MultiplyPanel<type()>(tile, p);
  });
}

void Quantize(const float* x, int64_t blocks, const Int8Blocks& out) {
  auto [quants, scales, sums, half_sums] = out;
  for (int64_t b = 0; b < blocks; ++b, x += kQuantBlock, quants += kQuantBlock) {
    // as integers, magnitudes have the same order, and infinity and NaN are the largest
    uint32_t amax_bits = 0;
    for (int k = 0; k < kQuantBlock; ++k) {
      const uint32_t magnitude = FloatBits(x[k]) & 0x7fffffff;
      amax_bits = magnitude > amax_bits ? magnitude : amax_bits;
    }
    const float amax = FloatFromBits(amax_bits);
    const bool finite = amax_bits < 0x7f800000;
    half_sums[2 * b] = half_sums[2 * b + 1] = 0;
    if (!finite || amax < kTinyBlock) {
      for (int k = 0; k < kQuantBlock; ++k) quants[k] = 0;
      scales[b] = finite ? 0.0f : __builtin_nanf("");
    } else {
      const float inverse = 127.0f / amax;
      for (int k = 0; k < kQuantBlock; ++k) {
        quants[k] = static_cast<int8_t>(RoundToEven(x[k] * inverse));
        half_sums[2 * b + k / kHalfBlock] += quants[k];
      }
      scales[b] = amax / 127.0f;
    }
    sums[b] = scales[b] * static_cast<float>(half_sums[2 * b] + half_sums[2 * b + 1]);
  }
}

}  // namespace

const KernelTable& PortableKernels() {
  static constexpr KernelTable table =
      Inner<PortableVector>::Table("portable", MultiplyInt8, Quantize);
  return table;
}

}  // namespace tidepool::kernels
