#include "engine/sampling/weights.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/math.h"

namespace tidepool::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Number of values that are compared or added as one block.
constexpr size_t kBlock = 64;

// Four lanes, which every x86-64 and ARM CPU has.
using FourFloats = float __attribute__((vector_size(16)));
using FourInts = int32_t __attribute__((vector_size(16)));
using TwoDoubles = double __attribute__((vector_size(16)));

FourFloats Load(const float* values) {
  FourFloats x;
  std::memcpy(&x, values, sizeof(x));
  return x;
}

FourFloats Larger(FourFloats a, FourFloats b) { return a > b ? a : b; }

bool All(FourInts lanes) { return (lanes[0] & lanes[1] & lanes[2] & lanes[3]) != 0; }

// Returns the largest of kBlock values, and sets lanes of `sound` to 0 if a value is +infinity or
// NaN.
float LargestOfBlock(const float* values, FourInts* sound) {
  FourFloats largest[4] = {};
  for (size_t i = 0; i < 4; ++i) {
    largest[i] = Load(values + 4 * i);
    *sound &= largest[i] < kInfinity;
    // NaN must not hide the other values of the lane.
    largest[i] = Larger(largest[i], FourFloats{} - kInfinity);
  }
  for (size_t at = 16; at < kBlock; at += 16) {
    for (size_t i = 0; i < 4; ++i) {
      const FourFloats x = Load(values + at + 4 * i);
      *sound &= x < kInfinity;
      largest[i] = Larger(x, largest[i]);
    }
  }
  const FourFloats m = Larger(Larger(largest[0], largest[1]), Larger(largest[2], largest[3]));
  return std::max(std::max(m[0], m[1]), std::max(m[2], m[3]));
}

// Not a template of the number of lanes, because gcc 12 confuses vector types of templates.
struct Four {
  static constexpr size_t kLanes = 4;
  using Floats = float __attribute__((vector_size(16)));
  using Words = uint32_t __attribute__((vector_size(16)));
};
struct Eight {
  static constexpr size_t kLanes = 8;
  using Floats = float __attribute__((vector_size(32)));
  using Words = uint32_t __attribute__((vector_size(32)));
};

// Replaces each lane x by e^x, or by 0 if x < kExpMin. The constants are those of kernels::Exp.
// That function uses fused operations, which are slow on CPUs that emulate them.
template <typename Vector>
[[gnu::always_inline]] inline void Exp(typename Vector::Floats& lanes) {
  using Floats = typename Vector::Floats;
  using Words = typename Vector::Words;
  const auto tiny = lanes < kernels::kExpMin;
  const Floats x = tiny ? Floats{} + kernels::kExpMin : lanes;
  const Floats shifted = x * kernels::kExpLog2E + kernels::kRoundingShift;
  const Floats n = shifted - kernels::kRoundingShift;
  const Floats r = (x - n * kernels::kExpLn2High) - n * kernels::kExpLn2Low;
  Floats p = r * kernels::kExpC5 + kernels::kExpC4;
  p = p * r + kernels::kExpC3;
  p = p * r + kernels::kExpC2;
  p = p * r + kernels::kExpC1;
  p = p * r + kernels::kExpC0;
  p = p * (r * r) + r + 1.0f;
  // The low bits of `shifted` are n, which is from -126 to 0.
  const Words power = ((Words)shifted + 127) << 23;
  lanes = tiny ? Floats{} : p * (Floats)power;
}

struct WeightJob {
  absl::Span<const float> logits;
  float best;
  float temperature;
  float* weights;
};

// Computes whole vectors from index `at` on. Returns the index after the last one.
template <typename Vector>
[[gnu::always_inline]] inline size_t ComputeVectors(const WeightJob& job, size_t at) {
  typename Vector::Floats x;
  for (; at + Vector::kLanes <= job.logits.size(); at += Vector::kLanes) {
    std::memcpy(&x, job.logits.data() + at, sizeof(x));
    x = (x - job.best) / job.temperature;
    Exp<Vector>(x);
    std::memcpy(job.weights + at, &x, sizeof(x));
  }
  return at;
}

#ifdef __x86_64__
[[gnu::target("avx2")]] size_t ComputeVectorsAvx2(const WeightJob& job) {
  return ComputeVectors<Eight>(job, 0);
}
#endif

// Computes as many weights as it can with eight lanes, which give the results of four lanes.
// Returns their number.
size_t ComputeWide(const WeightJob& job) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) return ComputeVectorsAvx2(job);
#endif
  static_cast<void>(job);
  return 0;
}

// Returns the sum of kBlock weights.
double SumBlock(const float* weights) {
  TwoDoubles sums[8] = {};
  for (size_t at = 0; at < kBlock; at += 16) {
    for (size_t i = 0; i < 8; ++i) {
      sums[i] += TwoDoubles{weights[at + 2 * i], weights[at + 2 * i + 1]};
    }
  }
  for (size_t i = 0; i < 4; ++i) sums[i] += sums[i + 4];
  const TwoDoubles sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return sum[0] + sum[1];
}

// Returns the sum of the weights from `begin` on, at most kBlock weights.
double SumFrom(absl::Span<const float> weights, size_t begin) {
  const absl::Span<const float> part = weights.subspan(begin, kBlock);
  if (part.size() == kBlock) return SumBlock(part.data());
  float block[kBlock] = {};
  std::copy(part.begin(), part.end(), block);
  return SumBlock(block);
}

}  // namespace

kernels::ArgMax FindBest(absl::Span<const float> logits) {
  kernels::ArgMax best;
  best.value = -kInfinity;
  size_t block = 0;
  FourInts sound = ~FourInts{};
  size_t at = 0;
  for (; at + kBlock <= logits.size(); at += kBlock) {
    const float largest = LargestOfBlock(logits.data() + at, &sound);
    if (largest <= best.value) continue;
    best.value = largest;
    block = at;
  }
  bool all_sound = All(sound);
  for (; at < logits.size(); ++at) {
    all_sound &= logits[at] < kInfinity;
    if (logits[at] <= best.value || !(logits[at] > -kInfinity)) continue;
    best.value = logits[at];
    block = at;
  }
  if (best.value > -kInfinity) {
    while (logits[block] != best.value) ++block;
    best.index = static_cast<int32_t>(block);
    best.value = logits[block];
  }
  for (size_t i = 0; !all_sound && best.unsound < 0; ++i) {
    if (logits[i] < kInfinity) continue;
    best.unsound = static_cast<int32_t>(i);
    best.unsound_value = logits[i];
  }
  return best;
}

absl::Span<const float> ComputeWeights(absl::Span<const float> logits, float best,
                                       float temperature, std::vector<float>* memory) {
  if (memory->size() < logits.size()) memory->resize(logits.size());
  const WeightJob job = {logits, best, temperature, memory->data()};
  const size_t done = ComputeVectors<Four>(job, ComputeWide(job));
  const absl::Span<const float> result = absl::MakeConstSpan(*memory).first(logits.size());
  if (done == logits.size()) return result;
  // The last values are computed in a vector of their own.
  const size_t rest = logits.size() - done;
  float last[4] = {best, best, best, best};
  std::copy_n(logits.data() + done, rest, last);
  float last_weights[4];
  ComputeVectors<Four>({last, best, temperature, last_weights}, 0);
  std::copy_n(last_weights, rest, memory->data() + done);
  return result;
}

double SumWeights(absl::Span<const float> weights) {
  double sum = 0;
  for (size_t at = 0; at < weights.size(); at += kBlock) sum += SumFrom(weights, at);
  return sum;
}

size_t DrawIndex(absl::Span<const float> weights, double random, std::vector<double>* sums) {
  sums->clear();
  double sum = 0;
  for (size_t at = 0; at < weights.size(); at += kBlock) {
    sum += SumFrom(weights, at);
    sums->push_back(sum);
  }
  const double target = random * sum;
  // The last sum is more than `target`: `random` is at most 1 - 2^-53, so the product is rounded to
  // less than `sum`.
  const size_t block = std::upper_bound(sums->begin(), sums->end(), target) - sums->begin();
  double mass = block == 0 ? 0 : (*sums)[block - 1];
  size_t last = block * kBlock;
  for (size_t i = last; i < std::min(weights.size(), (block + 1) * kBlock); ++i) {
    if (weights[i] == 0) continue;
    last = i;
    mass += weights[i];
    if (mass > target) break;
  }
  // If rounding keeps the mass of the block below its sum, this is the block's last weight.
  return last;
}

}  // namespace tidepool::engine
