// Loads and stores of less than a vector of 8 floats. inner.h describes V.
#ifndef TIDEPOOL_KERNELS_CPU_PART_INNER_H_
#define TIDEPOOL_KERNELS_CPU_PART_INNER_H_

#include <cstdint>

namespace tidepool::kernels {

template <typename V>
struct PartInner {
  using F = typename V::F;
  static constexpr int kPartLanes = 8;

  // Loads x[0..n) with n < 8. The remaining lanes become zero.
  static F LoadPart(const float* x, int64_t n) {
    float part[kPartLanes] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int64_t i = 0; i < n; ++i) part[i] = x[i];
    return V::Load(part);
  }
  static void StorePart(float* out, int64_t n, F value) {
    float part[kPartLanes];
    V::Store(part, value);
    for (int64_t i = 0; i < n; ++i) out[i] = part[i];
  }

  // LoadPart and StorePart for any n: at most 8 lanes are loaded or stored.
  static F LoadUpTo(const float* x, int64_t n) {
    return n >= kPartLanes ? V::Load(x) : LoadPart(x, n);
  }
  static void StoreUpTo(float* out, int64_t n, F value) {
    if (n >= kPartLanes) return V::Store(out, value);
    StorePart(out, n, value);
  }
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_PART_INNER_H_
