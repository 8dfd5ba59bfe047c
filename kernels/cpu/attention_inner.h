// The inner loops of attention, written once for vectors of any width. W is the widest vector type
// of an ISA. V is the ISA's vector of 8 floats (inner.h), which determines the order of sums. Every
// output is a separate chain, so the width of W does not change results.
//
// W has these members: kLanes; F (a vector of kLanes floats); Load, Store, Set, Sub, Mul, Fma, Max,
// MaxLanes, LoadF16, LoadBf16; LoadI8, which converts to floats; ExpBelowZero, which is math.h's
// Exp for x <= 0 or NaN; and AddTo(sums, x), which adds x to a V::F in groups of 8 lanes, the first
// group first.
#ifndef TIDEPOOL_KERNELS_CPU_ATTENTION_INNER_H_
#define TIDEPOOL_KERNELS_CPU_ATTENTION_INNER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/math.h"

namespace tidepool::kernels {

// Makes V usable as W.
template <typename V>
struct EightLanes : V {
  static constexpr int kLanes = 8;
  static typename V::F AddTo(typename V::F sums, typename V::F x) { return V::Add(sums, x); }
};

template <typename V, typename W = EightLanes<V>>
struct AttentionInner {
  using F = typename W::F;
  static constexpr int kLanes = W::kLanes;
  static constexpr int kQuants = 32;  // number of dimensions that share a scale with kQ8_0

  // Loads the elements [at, at + kLanes) of the stored type kType. For kQ8_0, they are not
  // multiplied by their scales.
  template <DType kType>
  static F LoadElements(const std::byte* data, int64_t at) {
    if constexpr (kType == DType::kF32) {
      return W::Load(reinterpret_cast<const float*>(data) + at);
    } else if constexpr (kType == DType::kF16) {
      return W::LoadF16(reinterpret_cast<const uint16_t*>(data) + at);
    } else if constexpr (kType == DType::kBF16) {
      return W::LoadBf16(reinterpret_cast<const uint16_t*>(data) + at);
    } else {
      return W::LoadI8(reinterpret_cast<const int8_t*>(data) + at);
    }
  }

  // Loads the keys of tokens [t, t + kLanes) of a block, in dimension d.
  template <DType kType>
  static F LoadKeys(const KvElements& keys, int d, int t) {
    const F k = LoadElements<kType>(keys.data, int64_t{d} * kKvBlockTokens + t);
    if constexpr (kType != DType::kQ8_0) return k;
    return W::Mul(k, W::Load(keys.scales + d / kQuants * kKvBlockTokens + t));
  }

  template <DType kType>
  static void LoadAll(const std::byte* source, int64_t n, float* out) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) W::Store(out + i, LoadElements<kType>(source, i));
    const float* floats = reinterpret_cast<const float*>(source);
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(source);
    for (; i < n; ++i) {
      if constexpr (kType == DType::kF32) {
        out[i] = floats[i];
      } else {
        out[i] = kType == DType::kF16 ? F16ToF32(halves[i]) : BF16ToF32(halves[i]);
      }
    }
  }

  static void Load(DType dtype, const std::byte* source, int64_t n, float* out) {
    switch (dtype) {
      case DType::kF32:
        return LoadAll<DType::kF32>(source, n, out);
      case DType::kF16:
        return LoadAll<DType::kF16>(source, n, out);
      default:
        return LoadAll<DType::kBF16>(source, n, out);
    }
  }

  static void Store(DType dtype, const float* source, int64_t n, std::byte* out) {
    float* floats = reinterpret_cast<float*>(out);
    uint16_t* halves = reinterpret_cast<uint16_t*>(out);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
      const typename V::F v = V::Load(source + i);
      if (dtype == DType::kF32) {
        V::Store(floats + i, v);
      } else if (dtype == DType::kF16) {
        V::StoreF16(halves + i, v);
      } else {
        V::StoreBf16(halves + i, v);
      }
    }
    for (; i < n; ++i) {
      if (dtype == DType::kF32) {
        floats[i] = source[i];
      } else {
        halves[i] = dtype == DType::kF16 ? F32ToF16(source[i]) : F32ToBF16(source[i]);
      }
    }
  }

  static void LoadKeyBlock(const KvElements& keys, int k_dim, float* out) {
    if (keys.dtype != DType::kQ8_0) {
      return Load(keys.dtype, keys.data, int64_t{k_dim} * kKvBlockTokens, out);
    }
    for (int d = 0; d < k_dim; ++d) {
      for (int t = 0; t < kKvBlockTokens; t += kLanes) {
        W::Store(out + d * kKvBlockTokens + t, LoadKeys<DType::kQ8_0>(keys, d, t));
      }
    }
  }

  static void LoadValueBlock(const KvElements& values, int v_dim, float* out) {
    if (values.dtype != DType::kQ8_0) {
      return Load(values.dtype, values.data, int64_t{v_dim} * kKvBlockTokens, out);
    }
    for (int64_t at = 0; at < int64_t{v_dim} * kKvBlockTokens; at += kQuants) {
      const F scale = W::Set(values.scales[at / kQuants]);
      for (int i = 0; i < kQuants; i += kLanes) {
        W::Store(out + at + i, W::Mul(LoadElements<DType::kQ8_0>(values.data, at + i), scale));
      }
    }
  }

  template <int R, DType kType>
  static void ScoreRows(const ScoreTile& tile) {
    constexpr int kVectors = kKvBlockTokens / kLanes;
    F sums[R][kVectors];
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVectors; ++v) sums[r][v] = W::Set(0.0f);
    }
    for (int d = 0; d < tile.k_dim; ++d) {
      F query[R];
      for (int r = 0; r < R; ++r) query[r] = W::Set(tile.queries[r][d]);
      for (int v = 0; v < kVectors; ++v) {
        const F k = LoadKeys<kType>(tile.keys, d, v * kLanes);
        for (int r = 0; r < R; ++r) sums[r][v] = W::Fma(query[r], k, sums[r][v]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVectors; ++v) W::Store(tile.scores[r] + v * kLanes, sums[r][v]);
    }
  }

  template <int R>
  static void ScoreUpTo(const ScoreTile& tile) {
    if constexpr (R > 1) {
      if (tile.vectors < R) return ScoreUpTo<R - 1>(tile);
    }
    switch (tile.keys.dtype) {
      case DType::kF32:
        return ScoreRows<R, DType::kF32>(tile);
      case DType::kF16:
        return ScoreRows<R, DType::kF16>(tile);
      case DType::kBF16:
        return ScoreRows<R, DType::kBF16>(tile);
      default:
        return ScoreRows<R, DType::kQ8_0>(tile);
    }
  }

  static SoftmaxState Softmax(float* scores, int begin, int end, float scale) {
    const int first = begin / kLanes * kLanes;
    const int last = (end + kLanes - 1) / kLanes * kLanes;
    const F factor = W::Set(scale);
    for (int t = first; t < last; t += kLanes) {
      W::Store(scores + t, W::Mul(W::Load(scores + t), factor));
    }
    // exp(-infinity - max) is exactly zero. Set this after scaling, because the scale may be
    // negative.
    for (int t = first; t < begin; ++t) scores[t] = -__builtin_inff();
    for (int t = end; t < last; ++t) scores[t] = -__builtin_inff();
    F largest = W::Set(-__builtin_inff());
    for (int t = first; t < last; t += kLanes) largest = W::Max(W::Load(scores + t), largest);
    const float max = W::MaxLanes(largest);
    const F joint = W::Set(max);
    typename V::F total = V::Set(0.0f);
    for (int t = first; t < last; t += kLanes) {
      const F share = W::ExpBelowZero(W::Sub(W::Load(scores + t), joint));
      W::Store(scores + t, share);
      total = W::AddTo(total, share);
    }
    return {max, V::SumLanes(total)};
  }

  // Adds up N vectors of columns of the values, starting at column `at`, for R query vectors. N *
  // kLanes and `at` either divide kQuants or are multiples of it.
  template <int R, int N, DType kType>
  static void FoldColumns(const FoldTile& tile, int at) {
    F sums[R][N];
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) sums[r][n] = W::Load(tile.sums[r] + at + n * kLanes);
    }
    const float* scales = kType == DType::kQ8_0 ? tile.values.scales + at / kQuants : nullptr;
    for (int t = tile.begin; t < tile.end; ++t) {
      F share[R];
      for (int r = 0; r < R; ++r) share[r] = W::Set(tile.shares[r][t]);
      for (int n = 0; n < N; ++n) {
        F v = LoadElements<kType>(tile.values.data, int64_t{t} * tile.v_dim + at + n * kLanes);
        if constexpr (kType == DType::kQ8_0) {
          v = W::Mul(v, W::Set(scales[t * (tile.v_dim / kQuants) + n * kLanes / kQuants]));
        }
        for (int r = 0; r < R; ++r) sums[r][n] = W::Fma(share[r], v, sums[r][n]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) W::Store(tile.sums[r] + at + n * kLanes, sums[r][n]);
    }
  }

  template <int R, DType kType>
  static void FoldRows(const FoldTile& tile) {
    constexpr int kVectors = R > 3 ? 2 : 4;
    int at = 0;
    for (; at + kVectors * kLanes <= tile.v_dim; at += kVectors * kLanes) {
      FoldColumns<R, kVectors, kType>(tile, at);
    }
    for (; at < tile.v_dim; at += kLanes) FoldColumns<R, 1, kType>(tile, at);
  }

  template <int R>
  static void FoldUpTo(const FoldTile& tile) {
    if constexpr (R > 1) {
      if (tile.vectors < R) return FoldUpTo<R - 1>(tile);
    }
    switch (tile.values.dtype) {
      case DType::kF32:
        return FoldRows<R, DType::kF32>(tile);
      case DType::kF16:
        return FoldRows<R, DType::kF16>(tile);
      case DType::kBF16:
        return FoldRows<R, DType::kBF16>(tile);
      default:
        return FoldRows<R, DType::kQ8_0>(tile);
    }
  }

  static void Merge(const SoftmaxState& segment, const float* sums, int v_dim, SoftmaxState* state,
                    float* fold) {
    const float joint = segment.max > state->max ? segment.max : state->max;
    float factors[8] = {state->max - joint, segment.max - joint, 0, 0, 0, 0, 0, 0};
    V::Store(factors, V::ExpBelowZero(V::Load(factors)));
    state->sum = __builtin_fmaf(segment.sum, factors[1], state->sum * factors[0]);
    state->max = joint;
    const F keep = W::Set(factors[0]);
    const F take = W::Set(factors[1]);
    for (int d = 0; d < v_dim; d += kLanes) {
      W::Store(fold + d, W::Fma(W::Load(sums + d), take, W::Mul(W::Load(fold + d), keep)));
    }
  }

  // kRows is the number of query vectors that are processed together. Their sums, which are four
  // vectors of tokens or columns for each of them, fit into registers.
  template <int kRows>
  static constexpr AttentionKernels Kernels() {
    static_assert(kRows <= kMaxAttendVectors);
    return {
        .vectors = kRows,
        .lanes = kLanes,
        .load = Load,
        .store = Store,
        .load_keys = LoadKeyBlock,
        .load_values = LoadValueBlock,
        .score = ScoreUpTo<kRows>,
        .softmax = Softmax,
        .fold = FoldUpTo<kRows>,
        .merge = Merge,
    };
  }
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ATTENTION_INNER_H_
