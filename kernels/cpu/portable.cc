// The form for any CPU: plain C++, the bits that the other forms must give.
#include "kernels/cpu/inner.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

int Nibble(const std::byte* quants, int row, int k) {
  const int half = k % (kQuantBlock / 2);
  const int pair = static_cast<int>(quants[4 * (half / 4 * kPanelRows + row) + half % 4]);
  return k < kQuantBlock / 2 ? pair & 15 : pair >> 4;
}

int SignedByte(const std::byte* quants, int row, int k) {
  return static_cast<int8_t>(quants[4 * (k / 4 * kPanelRows + row) + k % 4]);
}

float HalfAt(const std::byte* record, int index) {
  uint16_t half;
  __builtin_memcpy(&half, record + 2 * index, 2);
  return F16ToF32(half);
}

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

  // One record of a quantised type as [32][8] floats.
  static void UnpackQuants(DType dtype, const std::byte* record, float* out) {
    for (int r = 0; r < kPanelRows; ++r) {
      const float d = HalfAt(record, r);
      for (int k = 0; k < kQuantBlock; ++k) {
        float& value = out[k * kLanes + r];
        if (dtype == DType::kQ8_0) {
          value = d * static_cast<float>(SignedByte(record + kQ8QuantOffset, r, k));
        } else if (dtype == DType::kQ4_0) {
          value = d * static_cast<float>(Nibble(record + kQ4_0QuantOffset, r, k) - 8);
        } else {
          value = d * static_cast<float>(Nibble(record + kQ4_1QuantOffset, r, k)) +
                  HalfAt(record, kPanelRows + r);
        }
      }
    }
  }
};

// Four floats as GCC and Clang vectorise them on any architecture.
using Quad = float __attribute__((vector_size(16)));

// One record, unpacked: its integers as floats (Q4_0's less 8), its scales and minima.
struct Record {
  Record(DType dtype, const std::byte* record) {
    for (int k = 0; k < kQuantBlock; ++k) {
      for (int r = 0; r < kPanelRows; ++r) {
        const int w = dtype == DType::kQ8_0   ? SignedByte(record + kQ8QuantOffset, r, k)
                      : dtype == DType::kQ4_0 ? Nibble(record + kQ4_0QuantOffset, r, k) - 8
                                              : Nibble(record + kQ4_1QuantOffset, r, k);
        integers[k][r / 4][r % 4] = static_cast<float>(w);
      }
    }
    for (int r = 0; r < kPanelRows; ++r) {
      d[r] = HalfAt(record, r);
      if (dtype == DType::kQ4_1) m[r] = HalfAt(record, kPanelRows + r);
    }
  }
  Quad integers[kQuantBlock][kPanelRows / 4];
  float d[kPanelRows];
  float m[kPanelRows];  // Q4_1 only
};

// Adds block b's part to the sums of a record's rows for one row of x. The dots are integers below
// 32 * 128 * 127 < 2^24, so float arithmetic gives them exactly, in any order.
void AddRecord(const Tile& tile, const Record& record, int row, int64_t b, float* sums) {
  const int8_t* x = tile.quants[row] + b * kQuantBlock;
  Quad low = {};
  Quad high = {};
  for (int k = 0; k < kQuantBlock; ++k) {
    const float value = x[k];
    low += record.integers[k][0] * value;
    high += record.integers[k][1] * value;
  }
  for (int r = 0; r < kPanelRows; ++r) {
    const float dot = r < 4 ? low[r] : high[r - 4];
    sums[r] = __builtin_fmaf(record.d[r] * tile.scales[row][b], dot, sums[r]);
    if (tile.dtype == DType::kQ4_1) {
      sums[r] = __builtin_fmaf(record.m[r], tile.sums[row][b], sums[r]);
    }
  }
}

void MultiplyInt8(const Tile& tile) {
  const int record_bytes = Inner<PortableVector>::RecordBytes(tile.dtype);
  for (int p = 0; p < tile.panel_count; ++p) {
    float* out = tile.out + p * kPanelRows;
    for (int i = 0; i < tile.rows; ++i) {
      for (int r = 0; r < kPanelRows; ++r) out[i * kTileCols + r] = 0;
    }
    const std::byte* record = tile.panels + p * tile.panel_bytes;
    for (int64_t b = 0; b < tile.cols / kQuantBlock; ++b, record += record_bytes) {
      const Record unpacked(tile.dtype, record);
      for (int i = 0; i < tile.rows; ++i) {
        AddRecord(tile, unpacked, i, b, out + i * kTileCols);
      }
    }
  }
}

void Quantize(const float* x, int64_t blocks, int8_t* quants, float* scales, float* sums,
              int32_t* quant_sums) {
  for (int64_t b = 0; b < blocks; ++b, x += kQuantBlock, quants += kQuantBlock) {
    uint32_t amax_bits = 0;  // magnitudes order as integers, with infinity and NaNs on top
    for (int k = 0; k < kQuantBlock; ++k) {
      const uint32_t magnitude = FloatBits(x[k]) & 0x7fffffff;
      amax_bits = magnitude > amax_bits ? magnitude : amax_bits;
    }
    const float amax = FloatFromBits(amax_bits);
    const bool finite = amax_bits < 0x7f800000;
    int32_t sum = 0;
    if (!finite || amax < kTinyBlock) {
      for (int k = 0; k < kQuantBlock; ++k) quants[k] = 0;
      scales[b] = finite ? 0.0f : __builtin_nanf("");
    } else {
      const float inverse = 127.0f / amax;
      for (int k = 0; k < kQuantBlock; ++k) {
        quants[k] = static_cast<int8_t>(RoundToEven(x[k] * inverse));
        sum += quants[k];
      }
      scales[b] = amax / 127.0f;
    }
    quant_sums[b] = sum;
    sums[b] = scales[b] * static_cast<float>(sum);
  }
}

}  // namespace

const KernelTable& PortableKernels() {
  static const KernelTable table = Inner<PortableVector>::Table("portable", MultiplyInt8, Quantize);
  return table;
}

}  // namespace tidepool::kernels
