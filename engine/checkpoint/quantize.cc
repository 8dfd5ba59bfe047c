#include "engine/checkpoint/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "engine/checkpoint/quantize_k.h"
#include "engine/checkpoint/quantize_search.h"
#include "kernels/base/check.h"
#include "kernels/code_tables.h"
#include "kernels/math.h"

namespace tidepool::engine {
namespace {

using kernels::F16ToF32;
using kernels::F32ToBF16;
using kernels::F32ToF16;
using kernels::kE2M1Doubled;
using kernels::kIq4Values;
using quantize::AffineFit;
using quantize::CodeRange;

constexpr int kBlock = 32;
constexpr float kLargestF16 = 65504;

template <typename T>
void Store(T value, uint8_t* at) {
  std::memcpy(at, &value, sizeof(value));
}

void QuantizeF32(const float* x, uint8_t* block) { Store(*x, block); }
void QuantizeF16(const float* x, uint8_t* block) { Store(F32ToF16(*x), block); }
void QuantizeBF16(const float* x, uint8_t* block) { Store(F32ToBF16(*x), block); }

// Stores codes from 0 to 15. Elements 0 to 15 are the low nibbles of 16 bytes, and elements 16 to
// 31 are the high nibbles.
void StoreNibbles(const int8_t* codes, uint8_t* out) {
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
  }
}

// Stores bit 4 of each code.
void StoreFifthBits(const int8_t* codes, uint8_t* out) {
  uint32_t bits = 0;
  for (int j = 0; j < kBlock; ++j) bits |= static_cast<uint32_t>(codes[j] >> 4 & 1) << j;
  Store(bits, out);
}

// Finds a scale and stores it. Computes the codes for the stored scale, and adds `offset` to them.
void SymmetricCodes(const float* x, CodeRange range, int offset, uint8_t* block, int8_t* codes) {
  const uint16_t d = F32ToF16(quantize::FitScale(x, kBlock, range));
  Store(d, block);
  quantize::RoundCodes(x, kBlock, {F16ToF32(d), 0}, range, codes);
  for (int j = 0; j < kBlock; ++j) codes[j] = static_cast<int8_t>(codes[j] + offset);
}

void AffineCodes(const float* x, float high, uint8_t* block, int8_t* codes) {
  const AffineFit fit = quantize::FitAffine(x, kBlock, high, quantize::Minimum::kAny);
  const uint16_t d = F32ToF16(fit.step);
  // The fit takes all elements into account, so its minimum may be below the smallest element.
  const uint16_t m = F32ToF16(std::clamp(fit.minimum, -kLargestF16, kLargestF16));
  Store(d, block);
  Store(m, block + 2);
  quantize::RoundCodes(x, kBlock, {F16ToF32(d), F16ToF32(m)}, {0, high}, codes);
}

void QuantizeQ4_0(const float* x, uint8_t* block) {
  int8_t codes[kBlock];
  SymmetricCodes(x, {-8, 7}, 8, block, codes);
  StoreNibbles(codes, block + 2);
}

void QuantizeQ4_1(const float* x, uint8_t* block) {
  int8_t codes[kBlock];
  AffineCodes(x, 15, block, codes);
  StoreNibbles(codes, block + 4);
}

void QuantizeQ5_0(const float* x, uint8_t* block) {
  int8_t codes[kBlock];
  SymmetricCodes(x, {-16, 15}, 16, block, codes);
  StoreFifthBits(codes, block + 2);
  StoreNibbles(codes, block + 6);
}

void QuantizeQ5_1(const float* x, uint8_t* block) {
  int8_t codes[kBlock];
  AffineCodes(x, 31, block, codes);
  StoreFifthBits(codes, block + 4);
  StoreNibbles(codes, block + 8);
}

float LargestMagnitude(const float* x) {
  float largest = 0;
  for (int j = 0; j < kBlock; ++j) largest = std::max(largest, std::abs(x[j]));
  return largest;
}

void QuantizeQ8_0(const float* x, uint8_t* block) {
  const uint16_t d = F32ToF16(LargestMagnitude(x) / 127);
  Store(d, block);
  quantize::RoundCodes(x, kBlock, {F16ToF32(d), 0}, {-127, 127},
                       reinterpret_cast<int8_t*>(block + 2));
}

// The code of the nearest IQ4_NL value, for numbers from -128 in steps of 0.5. The values are
// integers, so the nearest one changes only at multiples of 0.5.
constexpr std::array<int8_t, 512> NearestIq4Codes() {
  std::array<int8_t, 512> codes = {};
  int code = 0;
  for (int half = 0; half < 512; ++half) {
    const int doubled = half - 256;
    while (code < 15 && doubled >= kIq4Values[code] + kIq4Values[code + 1]) ++code;
    codes[half] = static_cast<int8_t>(code);
  }
  return codes;
}
constexpr std::array<int8_t, 512> kNearestIq4 = NearestIq4Codes();

int NearestIq4(float x) {
  return kNearestIq4[static_cast<int>(std::clamp(2 * x + 256, 0.0f, 511.0f))];
}

// The codes for one scale, and the sums from which their error is computed (see FitScale).
struct Iq4Codes {
  std::array<int8_t, kBlock> codes = {};
  float xq = 0;
  float qq = 0;
  float gain() const { return qq > 0 ? xq * xq / qq : 0; }
};

Iq4Codes Iq4CodesAt(const float* x, float inverse) {
  Iq4Codes result;
  for (int j = 0; j < kBlock; ++j) {
    result.codes[j] = static_cast<int8_t>(NearestIq4(x[j] * inverse));
    const float value = kIq4Values[result.codes[j]];
    result.xq += x[j] * value;
    result.qq += value * value;
  }
  return result;
}

void QuantizeIQ4_NL(const float* x, uint8_t* block) {
  const float largest = LargestMagnitude(x);
  Iq4Codes best;
  if (largest > 0x1p-60f) {
    // Tries scales that map the largest magnitude to numbers near 113 and 127, the ends of the
    // table.
    for (float target = 92; target <= 148; target += 4) {
      for (const float sign : {-1.0f, 1.0f}) {
        const Iq4Codes found = Iq4CodesAt(x, sign * target / largest);
        if (found.gain() > best.gain()) best = found;
      }
    }
    for (int i = 0; i < 2; ++i) {
      const Iq4Codes found = Iq4CodesAt(x, best.qq / best.xq);
      if (!(found.gain() > best.gain())) break;
      best = found;
    }
  }
  const uint16_t d = F32ToF16(best.qq > 0 ? best.xq / best.qq : 0);
  const float scale = F16ToF32(d);
  const Iq4Codes stored = Iq4CodesAt(x, scale != 0 ? 1 / scale : 0);
  Store(d, block);
  StoreNibbles(stored.codes.data(), block + 2);
}

// Returns the code whose doubled magnitude is nearest to `doubled`.
int NearestE2M1(float doubled) {
  const float magnitude = std::abs(doubled);
  int best = 0;
  for (int code = 1; code < 8; ++code) {
    const float lower = kE2M1Doubled[code - 1];
    const float upper = kE2M1Doubled[code];
    if (magnitude > (lower + upper) / 2) best = code;
  }
  return best + (doubled < 0 ? 8 : 0);
}

void QuantizeMXFP4(const float* x, uint8_t* block) {
  // Tries the exponent for which the largest element is between 4 and 8 times the scale, and the
  // exponents next to it. The largest code is 6.
  const float largest = LargestMagnitude(x);
  int exponent = 0;
  std::frexp(largest, &exponent);
  float least = std::numeric_limits<float>::infinity();
  for (int e = exponent - 4; e <= exponent - 2; ++e) {
    const int biased = std::clamp(e + 127, 0, 254);
    const float scale = kernels::HalfOfE8M0(static_cast<uint8_t>(biased));
    int8_t codes[kBlock];
    float error = 0;
    for (int j = 0; j < kBlock; ++j) {
      const int code = NearestE2M1(x[j] / scale);
      // Errors are relative to the largest element, because the square of an error could exceed the
      // range of float32.
      const float left = largest > 0 ? x[j] / largest - scale / largest * kE2M1Doubled[code] : 0;
      error += left * left;
      codes[j] = static_cast<int8_t>(code);
    }
    if (!(error < least)) continue;
    least = error;
    block[0] = static_cast<uint8_t>(biased);
    StoreNibbles(codes, block + 1);
  }
}

using BlockFunction = void (*)(const float* x, uint8_t* block);

// Returns null if the type cannot be quantised here.
BlockFunction FunctionFor(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return QuantizeF32;
    case GgmlType::kF16:
      return QuantizeF16;
    case GgmlType::kBF16:
      return QuantizeBF16;
    case GgmlType::kQ8_0:
      return QuantizeQ8_0;
    case GgmlType::kQ4_0:
      return QuantizeQ4_0;
    case GgmlType::kQ4_1:
      return QuantizeQ4_1;
    case GgmlType::kQ5_0:
      return QuantizeQ5_0;
    case GgmlType::kQ5_1:
      return QuantizeQ5_1;
    case GgmlType::kQ4_K:
      return quantize::QuantizeQ4_K;
    case GgmlType::kQ5_K:
      return quantize::QuantizeQ5_K;
    case GgmlType::kQ6_K:
      return quantize::QuantizeQ6_K;
    case GgmlType::kIQ4_NL:
      return QuantizeIQ4_NL;
    case GgmlType::kMXFP4:
      return QuantizeMXFP4;
    default:
      return nullptr;
  }
}

}  // namespace

bool CanQuantize(GgmlType type) { return FunctionFor(type) != nullptr; }

float LargestQuantizable(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return std::numeric_limits<float>::max();
    case GgmlType::kBF16:
      return 0x1.fep127f;
    case GgmlType::kMXFP4:
      return 0x1.8p127f;  // for larger numbers, the nearest code may be 2^128
    default:
      return kLargestF16;
  }
}

void Quantize(GgmlType type, absl::Span<const float> in, std::byte* out) {
  const BlockFunction function = FunctionFor(type);
  CHECK(function != nullptr) << GgmlTypeName(type) << " cannot be quantised to";
  const GgmlTypeInfo& info = TypeInfo(type);
  CHECK_EQ(in.size() % info.block_elements, size_t{0}) << "elements of type " << info.name;
  uint8_t* block = reinterpret_cast<uint8_t*>(out);
  for (size_t i = 0; i < in.size(); i += info.block_elements) {
    function(in.data() + i, block);
    block += info.block_bytes;
  }
}

}  // namespace tidepool::engine
