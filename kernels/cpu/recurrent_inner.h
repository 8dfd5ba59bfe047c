// The inner loops of recurrent ops for vectors of 8 floats (inner.h describes V).
#ifndef TIDEPOOL_KERNELS_CPU_RECURRENT_INNER_H_
#define TIDEPOOL_KERNELS_CPU_RECURRENT_INNER_H_

#include <cstdint>

#include "kernels/cpu/activation_inner.h"
#include "kernels/cpu/attention_inner.h"
#include "kernels/cpu/delta_inner.h"
#include "kernels/cpu/part_inner.h"
#include "kernels/cpu/recurrent_kernels.h"

namespace tidepool::kernels {

template <typename V>
struct RecurrentInner : PartInner<V> {
  using F = typename V::F;
  using PartInner<V>::LoadUpTo;
  using PartInner<V>::StoreUpTo;
  static constexpr int kWidth = 8;

  // Computes the channels from c on (up to kWidth of them) of row t. The row's input replaces the
  // oldest input of the state.
  static void ConvolveVector(const ConvTile& tile, int64_t t, int c) {
    const int count = tile.channels - c;
    const int taps = tile.kernel - 1;
    float* const x = tile.x + t * tile.x_stride + c;
    F input = LoadUpTo(x, count);
    if (tile.in_gate != nullptr) {
      input = V::Mul(input, LoadUpTo(tile.in_gate + t * tile.in_gate_stride + c, count));
    }
    F sum = V::Set(0.0f);
    for (int j = 0; j < taps; ++j) {
      sum = V::Fma(V::Load(tile.weight + j * kStateChannels + c), V::Load(tile.inputs[j] + c), sum);
    }
    sum = V::Fma(V::Load(tile.weight + taps * kStateChannels + c), input, sum);
    V::Store(tile.inputs[0] + c, input);
    F y = V::Add(sum, V::Load(tile.bias + c));
    if (tile.activation == ConvActivation::kSilu) {
      y = ActivationInner<V>::DivideByOnePlusExp(y, V::Negate(y));
    }
    if (tile.out_gate != nullptr) {
      y = V::Mul(y, LoadUpTo(tile.out_gate + t * tile.out_gate_stride + c, count));
    }
    StoreUpTo(x, count, y);
  }

  static void Convolve(ConvTile* tile) {
    for (int64_t t = 0; t < tile->rows; ++t) {
      for (int c = 0; c < tile->channels; c += kWidth) ConvolveVector(*tile, t, c);
      float* const newest = tile->inputs[0];
      for (int j = 0; j + 2 < tile->kernel; ++j) tile->inputs[j] = tile->inputs[j + 1];
      tile->inputs[tile->kernel - 2] = newest;
    }
  }

  static void NormalizeLength(float* x, int64_t n, float eps, float scale) {
    F squares = V::Set(0.0f);
    for (int64_t i = 0; i < n; i += kWidth) {
      const F v = LoadUpTo(x + i, n - i);
      squares = V::Fma(v, v, squares);
    }
    const F factor = V::Set(scale / __builtin_sqrtf(V::SumLanes(squares) + eps));
    for (int64_t i = 0; i < n; i += kWidth) {
      const int64_t count = n - i;
      StoreUpTo(x + i, count, V::Mul(LoadUpTo(x + i, count), factor));
    }
  }

  static constexpr RecurrentKernels Kernels() {
    return {
        .convolve = Convolve,
        .normalize_length = NormalizeLength,
        .advance_delta = DeltaInner<EightLanes<V>>::template Advance<1>,
        .delta_tiles = 1,
    };
  }
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_RECURRENT_INNER_H_
