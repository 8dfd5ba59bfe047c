// The inner loop of the gated delta rule, written once for vectors of any width. W is a vector type
// with the members kLanes, F, Load, Store, Set, Mul, Fma and Negate. Each column of the state has
// its own chains, so the width does not change results.
#ifndef TIDEPOOL_KERNELS_CPU_DELTA_INNER_H_
#define TIDEPOOL_KERNELS_CPU_DELTA_INNER_H_

#include <cstdint>

#include "kernels/cpu/recurrent_kernels.h"

namespace tidepool::kernels {

template <typename W>
struct DeltaInner {
  using F = typename W::F;
  static constexpr int kLanes = W::kLanes;
  static_assert(kDeltaTileCols % kLanes == 0);

  // The columns of a tile as M vectors.
  template <int M>
  struct Columns {
    const DeltaTile& tile;

    bool IsWhole() const { return tile.columns == M * kLanes; }
    // Loads the elements of a row. If the tile has fewer than M * kLanes columns, the other lanes
    // become zero.
    void LoadRow(const float* row, F (&values)[M]) const {
      float part[M * kLanes] = {};
      if (!IsWhole()) {
        for (int c = 0; c < tile.columns; ++c) part[c] = row[c];
        row = part;
      }
      for (int m = 0; m < M; ++m) values[m] = W::Load(row + m * kLanes);
    }
    void StoreRow(float* row, const F (&values)[M]) const {
      float part[M * kLanes];
      float* const to = IsWhole() ? row : part;
      for (int m = 0; m < M; ++m) W::Store(to + m * kLanes, values[m]);
      if (IsWhole()) return;
      for (int c = 0; c < tile.columns; ++c) row[c] = part[c];
    }
    // The position of vector m in row 0 of the state.
    int64_t First(int m) const {
      constexpr int kVectors = kDeltaTileCols / kLanes;
      return int64_t{m / kVectors} * tile.k_dim * kDeltaTileCols + m % kVectors * kLanes;
    }
  };

  // Adds a row's update to the state. Also computes out = S^T q. With kNext, also computes S^T k
  // for the k of the next row.
  template <int M, bool kNext>
  static void Update(const Columns<M>& columns, int64_t t, const float* before, const F (&delta)[M],
                     F (&stored)[M]) {
    const DeltaTile& tile = columns.tile;
    const float* k = tile.k + t * tile.k_stride;
    const float* q = tile.q + t * tile.q_stride;
    const float* next = kNext ? k + tile.k_stride : nullptr;
    const F keep = W::Set(tile.keep[t * tile.keep_stride]);
    const float* from[M];
    float* to[M];
    F out[M];
    for (int m = 0; m < M; ++m) {
      from[m] = before + columns.First(m);
      to[m] = tile.after + columns.First(m);
      out[m] = stored[m] = W::Set(0.0f);
    }
    const int64_t k_dim = tile.k_dim;
    for (int64_t i = 0; i < k_dim; ++i) {
      const F ki = W::Set(k[i]);
      const F qi = W::Set(q[i]);
      // All loads come before the first store. Some CPUs first compare only the low 12 bits of
      // addresses. The tiles are a multiple of 4 KiB apart, so a load after a store to another tile
      // would wait for the store.
      F s[M];
      for (int m = 0; m < M; ++m) s[m] = W::Load(from[m] + i * kDeltaTileCols);
      for (int m = 0; m < M; ++m) s[m] = W::Fma(ki, delta[m], W::Mul(s[m], keep));
      for (int m = 0; m < M; ++m) W::Store(to[m] + i * kDeltaTileCols, s[m]);
      for (int m = 0; m < M; ++m) out[m] = W::Fma(qi, s[m], out[m]);
      if constexpr (kNext) {
        const F ni = W::Set(next[i]);
        for (int m = 0; m < M; ++m) stored[m] = W::Fma(ni, s[m], stored[m]);
      }
    }
    columns.StoreRow(tile.out + t * tile.out_stride, out);
  }

  template <int M>
  static void AdvanceColumns(const DeltaTile& tile) {
    const Columns<M> columns{tile};
    const float* before = tile.before;
    F stored[M];  // S^T k
    for (int m = 0; m < M; ++m) stored[m] = W::Set(0.0f);
    for (int64_t i = 0; i < tile.k_dim; ++i) {
      const F ki = W::Set(tile.k[i]);
      for (int m = 0; m < M; ++m) {
        stored[m] = W::Fma(ki, W::Load(before + columns.First(m) + i * kDeltaTileCols), stored[m]);
      }
    }
    for (int64_t t = 0; t < tile.rows; ++t) {
      const F minus_keep = W::Negate(W::Set(tile.keep[t * tile.keep_stride]));
      const F beta = W::Set(tile.beta[t * tile.beta_stride]);
      F delta[M];
      columns.LoadRow(tile.v + t * tile.v_stride, delta);
      for (int m = 0; m < M; ++m) {
        delta[m] = W::Mul(beta, W::Fma(minus_keep, stored[m], delta[m]));
      }
      if (t + 1 < tile.rows) {
        Update<M, true>(columns, t, before, delta, stored);
      } else {
        Update<M, false>(columns, t, before, delta, stored);
      }
      before = tile.after;
    }
  }

  // kTiles is the number of tiles that are computed together.
  template <int kTiles>
  static void Advance(const DeltaTile& tile) {
    constexpr int kVectors = kDeltaTileCols / kLanes;
    if constexpr (kTiles > 1) {
      if (tile.columns == kTiles * kDeltaTileCols) return AdvanceColumns<kTiles * kVectors>(tile);
      Advance<kTiles - 1>(tile);
    } else {
      AdvanceColumns<kVectors>(tile);
    }
  }
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_DELTA_INNER_H_
