#include "engine/checkpoint/dequantize.h"

#include <cstdint>

#include "kernels/base/check.h"
#include "kernels/code_tables.h"
#include "kernels/math.h"

namespace tidepool::engine {
namespace {

using kernels::BF16ToF32;
using kernels::F16ToF32;
using kernels::FloatFromBits;
using kernels::kE2M1Doubled;
using kernels::kIq4Values;

// Blocks are read as bytes, because their little-endian fields are not aligned.
using Bytes = const uint8_t*;

template <typename T>
T Load(Bytes at) {
  T value;
  __builtin_memcpy(&value, at, sizeof(T));
  return value;
}

float Half(Bytes at) { return F16ToF32(Load<uint16_t>(at)); }

// Element j of 16 bytes with two nibbles each. Elements 0 to 15 are the low nibbles, and elements
// 16 to 31 are the high nibbles.
int Nibble(Bytes quants, int j) { return j < 16 ? quants[j] & 15 : quants[j - 16] >> 4; }

void DequantizeF32(Bytes block, float* out) { *out = Load<float>(block); }
void DequantizeF16(Bytes block, float* out) { *out = Half(block); }
void DequantizeBF16(Bytes block, float* out) { *out = BF16ToF32(Load<uint16_t>(block)); }

template <typename T>
void DequantizeNumber(Bytes block, float* out) {
  *out = static_cast<float>(Load<T>(block));
}

void DequantizeQ4_0(Bytes block, float* out) {
  const float d = Half(block);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(Nibble(block + 2, j) - 8);
}

void DequantizeQ4_1(Bytes block, float* out) {
  const float d = Half(block);
  const float m = Half(block + 2);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(Nibble(block + 4, j)) + m;
}

void DequantizeQ5_0(Bytes block, float* out) {
  const float d = Half(block);
  const uint32_t high = Load<uint32_t>(block + 2);
  for (int j = 0; j < 32; ++j) {
    const int q = Nibble(block + 6, j) | static_cast<int>((high >> j & 1) << 4);
    out[j] = d * static_cast<float>(q - 16);
  }
}

void DequantizeQ5_1(Bytes block, float* out) {
  const float d = Half(block);
  const float m = Half(block + 2);
  const uint32_t high = Load<uint32_t>(block + 4);
  for (int j = 0; j < 32; ++j) {
    const int q = Nibble(block + 8, j) | static_cast<int>((high >> j & 1) << 4);
    out[j] = d * static_cast<float>(q) + m;
  }
}

void DequantizeQ8_0(Bytes block, float* out) {
  const float d = Half(block);
  for (int j = 0; j < 32; ++j) {
    out[j] = d * static_cast<float>(static_cast<int8_t>(block[2 + j]));
  }
}

void DequantizeQ2_K(Bytes block, float* out) {
  const Bytes scales = block;
  const Bytes quants = block + 16;
  const float d = Half(block + 80);
  const float dmin = Half(block + 82);
  for (int e = 0; e < 256; ++e) {
    const int scale = scales[e / 16];
    const int q = quants[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32)) & 3;
    const float step = d * static_cast<float>(scale & 15);
    const float minimum = dmin * static_cast<float>(scale >> 4);
    out[e] = step * static_cast<float>(q) - minimum;
  }
}

// Scale k of Q3_K. The low four bits are in the first 8 bytes, and the high two bits are in the
// last 4 bytes.
int Q3Scale(Bytes scales, int k) {
  const int low = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
  const int high = scales[8 + k % 4] >> (2 * (k / 4)) & 3;
  return (low | high << 4) - 32;
}

void DequantizeQ3_K(Bytes block, float* out) {
  const Bytes high_mask = block;
  const Bytes quants = block + 32;
  const Bytes scales = block + 96;
  const float d = Half(block + 108);
  for (int e = 0; e < 256; ++e) {
    const int n = e / 128;
    const int j = e % 128 / 32;
    const int l = e % 32;
    const int low = quants[32 * n + l] >> (2 * j) & 3;
    // If the bit is set, no offset is subtracted.
    const int q = low - ((high_mask[l] >> (4 * n + j) & 1) != 0 ? 0 : 4);
    out[e] = d * static_cast<float>(Q3Scale(scales, e / 16)) * static_cast<float>(q);
  }
}

struct ScaleAndMin {
  float step;
  float minimum;
};

// The six-bit scale of sub-block b of Q4_K and Q5_K, multiplied by d, and its minimum, multiplied
// by dmin.
ScaleAndMin KScale(Bytes block, int b) {
  const Bytes s = block + 4;
  const int scale = b < 4 ? s[b] & 63 : (s[b + 4] & 15) | (s[b - 4] >> 6) << 4;
  const int minimum = b < 4 ? s[b + 4] & 63 : (s[b + 4] >> 4) | (s[b] >> 6) << 4;
  return {Half(block) * static_cast<float>(scale), Half(block + 2) * static_cast<float>(minimum)};
}

void DequantizeQ4_K(Bytes block, float* out) {
  const Bytes quants = block + 16;
  for (int b = 0; b < 8; ++b) {
    const ScaleAndMin scale = KScale(block, b);
    for (int l = 0; l < 32; ++l) {
      const int q = quants[32 * (b / 2) + l] >> (4 * (b % 2)) & 15;
      out[32 * b + l] = scale.step * static_cast<float>(q) - scale.minimum;
    }
  }
}

void DequantizeQ5_K(Bytes block, float* out) {
  const Bytes high = block + 16;
  const Bytes quants = block + 48;
  for (int b = 0; b < 8; ++b) {
    const ScaleAndMin scale = KScale(block, b);
    for (int l = 0; l < 32; ++l) {
      const int q = (quants[32 * (b / 2) + l] >> (4 * (b % 2)) & 15) | (high[l] >> b & 1) << 4;
      out[32 * b + l] = scale.step * static_cast<float>(q) - scale.minimum;
    }
  }
}

void DequantizeQ6_K(Bytes block, float* out) {
  const Bytes low = block;
  const Bytes high = block + 128;
  const Bytes scales = block + 192;
  const float d = Half(block + 208);
  for (int e = 0; e < 256; ++e) {
    const int n = e / 128;
    const int g = e % 128 / 32;
    const int l = e % 32;
    const int nibble = low[64 * n + 32 * (g & 1) + l] >> (g >= 2 ? 4 : 0) & 15;
    const int q = (nibble | (high[32 * n + l] >> (2 * g) & 3) << 4) - 32;
    out[e] = d * static_cast<float>(static_cast<int8_t>(scales[e / 16])) * static_cast<float>(q);
  }
}

void DequantizeIQ4_NL(Bytes block, float* out) {
  const float d = Half(block);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(kIq4Values[Nibble(block + 2, j)]);
}

void DequantizeIQ4_XS(Bytes block, float* out) {
  const float d = Half(block);
  const int high = Load<uint16_t>(block + 2);
  const Bytes low = block + 4;
  const Bytes quants = block + 8;
  for (int b = 0; b < 8; ++b) {
    const int scale = (low[b / 2] >> (4 * (b % 2)) & 15) | (high >> (2 * b) & 3) << 4;
    const float step = d * static_cast<float>(scale - 32);
    for (int j = 0; j < 32; ++j) {
      out[32 * b + j] = step * static_cast<float>(kIq4Values[Nibble(quants + 16 * b, j)]);
    }
  }
}

void DequantizeMXFP4(Bytes block, float* out) {
  const float d = kernels::HalfOfE8M0(block[0]);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(kE2M1Doubled[Nibble(block + 1, j)]);
}

// Returns half of an unsigned E4M3 float, which has an exponent bias of 7 and no infinity. The bit
// pattern of NaN is treated as 0.
float HalfOfUE4M3(int s) {
  if (s == 0 || s == 0x7f) return 0.0f;
  const int exponent = s >> 3 & 15;
  const float mantissa = static_cast<float>(s & 7);
  if (exponent == 0) return mantissa * 0x1p-10f;
  return (1.0f + mantissa / 8.0f) * FloatFromBits(static_cast<uint32_t>(exponent + 119) << 23);
}

void DequantizeNVFP4(Bytes block, float* out) {
  for (int e = 0; e < 64; ++e) {
    const int group = e / 16;
    const int pair = block[4 + 8 * group + e % 8];
    const int code = e % 16 < 8 ? pair & 15 : pair >> 4;
    out[e] = HalfOfUE4M3(block[group]) * static_cast<float>(kE2M1Doubled[code]);
  }
}

using BlockFunction = void (*)(Bytes block, float* out);

// Returns null if the type cannot be dequantised here.
BlockFunction FunctionFor(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return DequantizeF32;
    case GgmlType::kF16:
      return DequantizeF16;
    case GgmlType::kBF16:
      return DequantizeBF16;
    case GgmlType::kF64:
      return DequantizeNumber<double>;
    case GgmlType::kI8:
      return DequantizeNumber<int8_t>;
    case GgmlType::kI16:
      return DequantizeNumber<int16_t>;
    case GgmlType::kI32:
      return DequantizeNumber<int32_t>;
    case GgmlType::kI64:
      return DequantizeNumber<int64_t>;
    case GgmlType::kQ4_0:
      return DequantizeQ4_0;
    case GgmlType::kQ4_1:
      return DequantizeQ4_1;
    case GgmlType::kQ5_0:
      return DequantizeQ5_0;
    case GgmlType::kQ5_1:
      return DequantizeQ5_1;
    case GgmlType::kQ8_0:
      return DequantizeQ8_0;
    case GgmlType::kQ2_K:
      return DequantizeQ2_K;
    case GgmlType::kQ3_K:
      return DequantizeQ3_K;
    case GgmlType::kQ4_K:
      return DequantizeQ4_K;
    case GgmlType::kQ5_K:
      return DequantizeQ5_K;
    case GgmlType::kQ6_K:
      return DequantizeQ6_K;
    case GgmlType::kIQ4_NL:
      return DequantizeIQ4_NL;
    case GgmlType::kIQ4_XS:
      return DequantizeIQ4_XS;
    case GgmlType::kMXFP4:
      return DequantizeMXFP4;
    case GgmlType::kNVFP4:
      return DequantizeNVFP4;
    default:
      return nullptr;
  }
}

}  // namespace

bool CanDequantize(GgmlType type) { return FunctionFor(type) != nullptr; }

void Dequantize(GgmlType type, const std::byte* source, absl::Span<float> out) {
  const BlockFunction function = FunctionFor(type);
  CHECK(function != nullptr) << GgmlTypeName(type) << " cannot be dequantised";
  const GgmlTypeInfo& info = TypeInfo(type);
  CHECK_EQ(out.size() % info.block_elements, size_t{0}) << "elements of type " << info.name;
  Bytes block = reinterpret_cast<Bytes>(source);
  for (size_t i = 0; i < out.size(); i += info.block_elements) {
    function(block, out.data() + i);
    block += info.block_bytes;
  }
}

}  // namespace tidepool::engine
