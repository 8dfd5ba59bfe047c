// Inner loops over vectors of 8 floats, written once for all ISAs. V is the vector type of an ISA,
// with its operations (portable.cc, avx2.cc). Instances for different V are different functions, so
// the linker cannot merge code of different ISAs. All operations are IEEE operations, and their
// order does not depend on V.
//
// V has these members: F (a vector of 8 floats), Load, Store, Set, Add, Sub, Mul, Div, Fma(a, b, c)
// = a * b + c, Negate, Min(a, b) = a < b ? a : b, Max(a, b) = a > b ? a : b, Abs,
// CopySign(magnitude, sign), SelectLess(a, b, yes, no) = a < b ? yes : no, MaxLanes, SumLanes (the
// tree of ops.h), Exp (that of math.h), LoadF16, LoadBf16, StoreF16, StoreBf16, RotatePairs,
// UnpackQuants(dtype, panel, b, out), which dequantises block b of a quantised panel to [32][8]
// floats exactly as GGUF defines, and the members that attention_inner.h lists for W.
#ifndef TIDEPOOL_KERNELS_CPU_INNER_H_
#define TIDEPOOL_KERNELS_CPU_INNER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/activation_inner.h"
#include "kernels/cpu/attention_inner.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/part_inner.h"
#include "kernels/cpu/recurrent_inner.h"
#include "kernels/math.h"
#include "kernels/panel.h"

namespace tidepool::kernels {

inline constexpr int kLanes = 8;

template <typename V>
struct Inner : PartInner<V> {
  using F = typename V::F;
  using A = ActivationInner<V>;
  using PartInner<V>::LoadPart;
  using PartInner<V>::StorePart;

  static void Norm(const float* x, const float* weight, int64_t n, float eps, float* out) {
    F squares = V::Set(0.0f);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const F v = V::Load(x + i);
      squares = V::Fma(v, v, squares);
    }
    if (i < n) {
      const F v = LoadPart(x + i, n - i);
      squares = V::Fma(v, v, squares);
    }
    const float mean = V::SumLanes(squares) / static_cast<float>(n);
    const float inverse = 1.0f / __builtin_sqrtf(mean + eps);
    const F scale = V::Set(inverse);
    for (i = 0; i + kLanes <= n; i += kLanes) {
      V::Store(out + i, V::Mul(V::Mul(V::Load(x + i), scale), V::Load(weight + i)));
    }
    if (i < n) {
      const F v = V::Mul(V::Mul(LoadPart(x + i, n - i), scale), LoadPart(weight + i, n - i));
      StorePart(out + i, n - i, v);
    }
  }

  template <GluForm kForm>
  static void ApplyGlu(const float* gate, const float* up, int64_t n, const Glu& glu, float* out) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      V::Store(out + i, A::template GluVector<kForm>(V::Load(gate + i), V::Load(up + i), glu));
    }
    if (i < n) {
      StorePart(
          out + i, n - i,
          A::template GluVector<kForm>(LoadPart(gate + i, n - i), LoadPart(up + i, n - i), glu));
    }
  }

  // out = function(x), one vector after another. `out` may be x.
  template <typename Function>
  static void Map(const float* x, int64_t n, float* out, Function function) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) V::Store(out + i, function(V::Load(x + i)));
    if (i < n) StorePart(out + i, n - i, function(LoadPart(x + i, n - i)));
  }

  static void Scale(float* x, float scale, int64_t n) {
    const F factor = V::Set(scale);
    Map(x, n, x, [&](F v) { return V::Mul(v, factor); });
  }

  static void SoftCap(float* x, int64_t n, float factor, float cap) {
    const F f = V::Set(factor);
    const F c = V::Set(cap);
    Map(x, n, x, [&](F v) { return A::SoftCap(v, f, c); });
  }

  static void Sigmoid(const float* x, int64_t n, float* out) {
    Map(x, n, out, [](F v) { return A::Sigmoid(v); });
  }

  static void Add(const float* x, int64_t n, float* out) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      V::Store(out + i, V::Add(V::Load(out + i), V::Load(x + i)));
    }
    for (; i < n; ++i) out[i] = out[i] + x[i];
  }

  static void AddScaled(const float* x, float scale, int64_t n, float* out) {
    const F factor = V::Set(scale);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      V::Store(out + i, V::Fma(factor, V::Load(x + i), V::Load(out + i)));
    }
    for (; i < n; ++i) out[i] = __builtin_fmaf(scale, x[i], out[i]);
  }

  // Returns the largest number. NaN are ignored. Returns -infinity if there is no number.
  static float MaxOf(const float* x, int64_t n) {
    F lanes = V::Set(-__builtin_inff());
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) lanes = V::Max(V::Load(x + i), lanes);
    float max = V::MaxLanes(lanes);
    for (i = n - n % kLanes; i < n; ++i) max = x[i] > max ? x[i] : max;
    return max;
  }

  static void Softmax(const float* logits, int64_t n, float* shares) {
    const F max = V::Set(MaxOf(logits, n));
    F total = V::Set(0.0f);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const F e = V::Exp(V::Sub(V::Load(logits + i), max));
      V::Store(shares + i, e);
      total = V::Add(total, e);
    }
    if (i < n) {
      StorePart(shares + i, n - i, V::Exp(V::Sub(LoadPart(logits + i, n - i), max)));
      total = V::Add(total, LoadPart(shares + i, n - i));
    }
    const float sum = V::SumLanes(total);
    for (i = 0; i < n; ++i) shares[i] = shares[i] / sum;
  }

  // Rotates a pair: a' = a cos - b sin, b' = b cos + a sin. The second product is rounded, and then
  // the first product is fused with the addition.
  static void RotateScalar(float* a, float* b, float cos, float sin) {
    const float x = *a;
    const float y = *b;
    *a = __builtin_fmaf(x, cos, -(y * sin));
    *b = __builtin_fmaf(y, cos, x * sin);
  }

  static void RotateHalves(float* head, int pairs, const float* cos, const float* sin) {
    int i = 0;
    for (; i + kLanes <= pairs; i += kLanes) {
      const F a = V::Load(head + i);
      const F b = V::Load(head + pairs + i);
      const F c = V::Load(cos + i);
      const F s = V::Load(sin + i);
      V::Store(head + i, V::Fma(a, c, V::Negate(V::Mul(b, s))));
      V::Store(head + pairs + i, V::Fma(b, c, V::Mul(a, s)));
    }
    for (; i < pairs; ++i) RotateScalar(head + i, head + pairs + i, cos[i], sin[i]);
  }

  static void RotateInterleaved(float* head, int pairs, const float* cos, const float* sin) {
    int i = 0;
    for (; i + kLanes / 2 <= pairs; i += kLanes / 2) V::RotatePairs(head + 2 * i, cos + i, sin + i);
    for (; i < pairs; ++i) RotateScalar(head + 2 * i, head + 2 * i + 1, cos[i], sin[i]);
  }

  static void Rope(float* row, const RowRotation& rotation) {
    for (int h = 0; h < rotation.heads; ++h) {
      float* head = row + int64_t{h} * rotation.head_dim;
      if (rotation.style == RopeStyle::kHalves) {
        RotateHalves(head, rotation.pairs, rotation.cos, rotation.sin);
      } else {
        RotateInterleaved(head, rotation.pairs, rotation.cos, rotation.sin);
      }
    }
  }

  // Loads column `k` of a panel of float type.
  template <DType kType>
  static F LoadColumn(const std::byte* panel, int64_t k) {
    if constexpr (kType == DType::kF32) {
      return V::Load(reinterpret_cast<const float*>(panel) + k * kLanes);
    } else if constexpr (kType == DType::kF16) {
      return V::LoadF16(reinterpret_cast<const uint16_t*>(panel) + k * kLanes);
    } else {
      return V::LoadBf16(reinterpret_cast<const uint16_t*>(panel) + k * kLanes);
    }
  }

  // For n columns k: sums[r][p] += x[r][k] * column k of panels[p].
  template <int R, int P, DType kType>
  static void AddColumns(const float* const* x, const std::byte* const* panels, int64_t n,
                         F (&sums)[R][P]) {
    for (int64_t k = 0; k < n; ++k) {
      F w[P];
      for (int p = 0; p < P; ++p) w[p] = LoadColumn<kType>(panels[p], k);
      for (int r = 0; r < R; ++r) {
        const F value = V::Set(x[r][k]);
        for (int p = 0; p < P; ++p) sums[r][p] = V::Fma(value, w[p], sums[r][p]);
      }
    }
  }

  // Like AddColumns, for quantised panels. The panels are converted to floats block by block.
  template <int R, int P>
  static void AddBlocks(const Tile& tile, const float* const* rows, const std::byte* const* panels,
                        F (&sums)[R][P]) {
    float chunk[P][kQuantBlock * kLanes];
    const std::byte* chunks[P];
    const float* x[R];
    for (int64_t b = 0; b < tile.cols / kQuantBlock; ++b) {
      for (int p = 0; p < P; ++p) {
        V::UnpackQuants(tile.dtype, panels[p], b, chunk[p]);
        chunks[p] = reinterpret_cast<const std::byte*>(chunk[p]);
      }
      for (int r = 0; r < R; ++r) x[r] = rows[r] + b * kQuantBlock;
      AddColumns<R, P, DType::kF32>(x, chunks, kQuantBlock, sums);
    }
  }

  // Multiplies R rows with P panels, starting at panel `first`. Computes R * P independent chains.
  template <int R, int P>
  static void FloatTile(const Tile& tile, int row, int first) {
    const std::byte* panels[P];
    const float* x[R];
    F sums[R][P];
    for (int p = 0; p < P; ++p) panels[p] = tile.panels + (first + p) * tile.panel_bytes;
    for (int r = 0; r < R; ++r) {
      x[r] = tile.values[row + r];
      for (int p = 0; p < P; ++p) sums[r][p] = V::Set(0.0f);
    }
    switch (tile.dtype) {
      case DType::kF32:
        AddColumns<R, P, DType::kF32>(x, panels, tile.cols, sums);
        break;
      case DType::kF16:
        AddColumns<R, P, DType::kF16>(x, panels, tile.cols, sums);
        break;
      case DType::kBF16:
        AddColumns<R, P, DType::kBF16>(x, panels, tile.cols, sums);
        break;
      default:
        AddBlocks<R, P>(tile, x, panels, sums);
        break;
    }
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < P; ++p) {
        V::Store(tile.out + (row + r) * kTileCols + (first + p) * kLanes, sums[r][p]);
      }
    }
  }

  // Multiplies up to R rows, starting at `row`, with all panels.
  template <int R>
  static void FloatRows(const Tile& tile, int row) {
    if (tile.rows - row < R) {
      if constexpr (R > 1) FloatRows<R - 1>(tile, row);
      return;
    }
    int p = 0;
    if constexpr (R == 1) {
      if (tile.panel_count == kTilePanels) return FloatTile<1, kTilePanels>(tile, row, 0);
    }
    for (; p + 2 <= tile.panel_count; p += 2) FloatTile<R, 2>(tile, row, p);
    if (p < tile.panel_count) FloatTile<R, 1>(tile, row, p);
  }

  static void MultiplyFloat(const Tile& tile) {
    // With six rows and two panels, the twelve chains, two weights and one broadcast value fit into
    // sixteen registers.
    constexpr int kRows = 6;
    for (int row = 0; row < tile.rows; row += kRows) FloatRows<kRows>(tile, row);
  }

  static constexpr KernelTable Table(const char* name, void (*multiply_int8)(const Tile&),
                                     decltype(KernelTable::quantize) quantize) {
    return {
        .name = name,
        .multiply_int8 = multiply_int8,
        .multiply_float = MultiplyFloat,
        .quantize = quantize,
        .norm = Norm,
        .glu = {ApplyGlu<GluForm::kSwiGlu>, ApplyGlu<GluForm::kGeGlu>,
                ApplyGlu<GluForm::kGeGluTanh>, ApplyGlu<GluForm::kClampedSwiGlu>},
        .add = Add,
        .add_scaled = AddScaled,
        .scale = Scale,
        .soft_cap = SoftCap,
        .softmax = Softmax,
        .sigmoid = Sigmoid,
        .rope = Rope,
        .attention = AttentionInner<V>::template Kernels<3>(),
        .recurrent = RecurrentInner<V>::Kernels(),
    };
  }
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_INNER_H_
