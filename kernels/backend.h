// KernelBackend: the dozen coarse operations that a transformer's forward pass is made of, cut
// where fusion happens. reference/ holds plain loops, the truth of each op; cpu/ the fast ones.
//
// Bits. A row's result depends on that row's own inputs alone: never on the other rows of the
// batch, on the number of threads, or on the ISA. Therefore each output is one chain of fused
// multiply-adds over ascending K (for quantised weights: the chain of ops.h over blocks of 32),
// sums over a row have the fixed shape that ops.h states, and exp and silu are our own polynomials
// (math.h).
#ifndef TIDEPOOL_KERNELS_BACKEND_H_
#define TIDEPOOL_KERNELS_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "kernels/packed_matrix.h"
#include "kernels/tensor.h"

namespace tidepool::kernels {

// kFast: activations that meet quantised weights are int8 in blocks of 32. kExact: all float32.
enum class Precision : uint8_t { kFast, kExact };

// The left operand of MatMul: float rows and, where the backend's precision is kFast and cols is a
// multiple of 32, the same rows as int8 blocks, made once for all weights that read them.
// Lives in the Arena that made it.
struct Activation {
  ConstMatrixView values;              // [rows, cols]
  const int8_t* quants = nullptr;      // [rows, cols]; null without the int8 form
  const float* scales = nullptr;       // [rows, cols / 32]: value = scale * quant
  const float* sums = nullptr;         // [rows, cols / 32]: scale * (sum of the block's quants)
  const int16_t* half_sums = nullptr;  // [rows, cols / 16]: sums of quants over halves of blocks
};

// What MatMul does with a product: replaces `out`, or adds to it (a residual stream).
enum class Store : uint8_t { kReplace, kAdd };

struct MatMulTarget {
  PackedMatrix weight;
  MatrixView out;                // [x.rows, weight.rows]
  absl::Span<const float> bias;  // [weight.rows], or empty; added after the whole chain
  Store store = Store::kReplace;
};

// What a greedy choice needs of one row of a product: the largest output and, of equal ones, the
// lowest index. NaN is larger than nothing.
struct ArgMax {
  int32_t index = -1;  // -1: all are -infinity or NaN
  float value = 0;
  int32_t unsound = -1;  // the first output that is NaN or +infinity, and which; -1: none
  float unsound_value = 0;
};

// A product whose rows are wanted whole or only for their best: those of `out` first, then those of
// `best`. Row r of it is the sum of the products of x's rows r, r + rows, ... (`terms` of them).
struct HeadTarget {
  PackedMatrix weight;
  absl::Span<const float> bias;  // [weight.rows], or empty; added after the sum
  int terms = 1;
  MatrixView out;           // [rows, weight.rows]
  absl::Span<ArgMax> best;  // over the outputs [0, argmax_vocab)
  int64_t argmax_vocab = 0;

  int64_t rows() const { return out.rows + static_cast<int64_t>(best.size()); }
};

// How RoPE pairs the rotated elements of a head: (2i, 2i+1), or (i, i + n_rot/2).
enum class RopeStyle : uint8_t { kInterleaved, kHalves };

// Tokens of one KV block, and of one segment of attention's fold. Part of the numerics.
inline constexpr int kKvBlockTokens = 32;
inline constexpr int kKvSegmentTokens = 128;

// One layer's share of a paged KV arena. Block b of the arena begins at arena + b * block_bytes.
// In it, at k_offset, keys [kv_heads][k_dim][kKvBlockTokens] (lanes hold tokens), and at v_offset,
// values [kv_heads][kKvBlockTokens][v_dim].
//
// kQ8_0 keeps, instead of each head's elements, scales in float16 and then the elements as int8 in
// the same order; an element is scale * quant. 32 dimensions of a token share a scale, so that a
// token's quants depend on that token alone: keys have scales [k_dim / 32][kKvBlockTokens], values
// [kKvBlockTokens][v_dim / 32]. Quants are those of ops.h, their scale rounded to float16.
struct KvLayer {
  DType dtype = DType::kF16;  // see IsKvType
  int kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  std::byte* arena = nullptr;
  size_t block_bytes = 0;
  size_t k_offset = 0;
  size_t v_offset = 0;
};

// Whether KV can be kept in this type: kF32, kF16, kBF16, and kQ8_0 where dimensions are multiples
// of 32.
inline bool IsKvType(DType dtype, int head_dim) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         (dtype == DType::kQ8_0 && head_dim % BlockElements(dtype) == 0);
}

// Bytes of one block's keys, or values, of one KV head.
inline size_t KvHeadBytes(DType dtype, int head_dim) {
  return BlockCount(dtype, int64_t{kKvBlockTokens} * head_dim) * BlockBytes(dtype);
}

// Which keys a query row sees: those up to itself, or all up to the end of its own span.
enum class Mask : uint8_t { kCausal, kBidirectional };

// Rows [first_row, first_row + rows) of the batch hold KV slots [first_slot, first_slot + rows) of
// one sequence. Slot s is in block blocks[s / kKvBlockTokens].
struct KvSpan {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_slot = 0;
  absl::Span<const int32_t> blocks;
  Mask mask = Mask::kCausal;
  int64_t window = 0;  // a row at slot p sees slots > p - window; 0: all
};

// What KernelBackend::Attend attends: the queries of a batch over one layer's KV.
struct AttendCall {
  ConstMatrixView q;  // [rows, heads * k_dim]
  int heads = 0;
  float scale = 0;  // of q k^T
  const KvLayer& layer;
  absl::Span<const KvSpan> spans;
};

// How router logits become expert weights: softmax over all experts, top_k by value (ties to the
// lower id), and, if normalize, division by the sum of the chosen.
struct GateSpec {
  int experts = 0;
  int top_k = 0;
  bool normalize = false;
};

// The three matrices of one SwiGLU expert: gate and up [width, hidden], down [hidden, width].
struct FfnWeights {
  PackedMatrix gate;
  PackedMatrix up;
  PackedMatrix down;
};

// One expert and the rows that chose it: row rows[i] of x goes to row out_rows[i] of the output.
struct ExpertGroup {
  const FfnWeights* weights = nullptr;
  absl::Span<const int32_t> rows;
  absl::Span<const int32_t> out_rows;
};

// Products of one expert on their way to their tokens' sums: row rows[i] of its output, times
// weights[i], to token tokens[i]. The tokens are distinct.
struct ExpertTerms {
  absl::Span<const int32_t> rows;
  absl::Span<const int32_t> tokens;
  absl::Span<const float> weights;
};

// Thread-compatible: one thread calls; an implementation uses its own pool inside a call.
// All scratch comes from the caller's Arena.
class KernelBackend {
 public:
  virtual ~KernelBackend() = default;

  // For people and metrics, such as "cpu avx2, 2 threads".
  virtual std::string Description() const = 0;
  virtual Precision precision() const = 0;
  // Threads that work on one op, the calling one included; they size the scratch in ops.h.
  virtual int threads() const { return 1; }

  // out[i] = row ids[i] of table, dequantised. Requires: ids in [0, table.rows).
  virtual void Embed(const PackedMatrix& table, absl::Span<const int32_t> ids, MatrixView out) = 0;

  // x as an Activation; its values are x itself, not a copy.
  virtual Activation Quantize(ConstMatrixView x, Arena* arena) = 0;

  // RMS norm of each row, times weight: x * rsqrt(mean(x^2) + eps) * weight.
  virtual Activation Norm(ConstMatrixView x, absl::Span<const float> weight, float eps,
                          Arena* arena) = 0;

  // The same within each head, in place. x: [rows, heads * weight.size()].
  virtual void HeadNorm(MatrixView x, absl::Span<const float> weight, float eps) = 0;

  // One product per target, all with the same x.
  virtual void MatMul(const Activation& x, absl::Span<const MatMulTarget> targets) = 0;

  // The last product of a model. Requires: x.rows = target.terms * target.rows().
  virtual void MatMulHead(const Activation& x, const HeadTarget& target, Arena* arena) = 0;

  // silu(x gate^T) * (x up^T): [x.rows, gate.rows].
  virtual Activation MatMulSwiGlu(const Activation& x, const PackedMatrix& gate,
                                  const PackedMatrix& up, Arena* arena) = 0;

  // cos and sin [positions, inv_freq.size()] of position * inv_freq, times `scale`.
  virtual void RopeTable(absl::Span<const int64_t> positions, absl::Span<const double> inv_freq,
                         float scale, MatrixView cos, MatrixView sin) = 0;

  // Rotates the first 2 * cos.cols elements of each head of each row, in place.
  virtual void Rope(MatrixView x, int head_dim, RopeStyle style, ConstMatrixView cos,
                    ConstMatrixView sin) = 0;

  // Writes the rows' keys and values into their KV slots, in the layer's type.
  // k: [rows, kv_heads * k_dim], v: [rows, kv_heads * v_dim].
  virtual void StoreKv(ConstMatrixView k, ConstMatrixView v, const KvLayer& layer,
                       absl::Span<const KvSpan> spans) = 0;

  // Softmax attention with grouped queries over the stored KV; StoreKv of the same spans comes
  // first. Result: [rows, heads * v_dim]. Each row takes its KV in segments of kKvSegmentTokens at
  // absolute slots: a softmax and a chain over each segment, merged in ascending order.
  virtual Activation Attend(const AttendCall& call, Arena* arena) = 0;

  // logits [rows, experts] > ids and weights, each [rows, top_k], in descending order of weight.
  virtual void Gate(ConstMatrixView logits, const GateSpec& spec, int32_t* ids, float* weights) = 0;

  // out[group.out_rows[i]] = down(silu(gate x) * up x) for x = row group.rows[i], for every group.
  virtual void GroupedFfn(const Activation& x, absl::Span<const ExpertGroup> groups, MatrixView out,
                          Arena* arena) = 0;

  // out[t] += sum over slots in the order given of weights[t][s] * expert_out[rows[t][s]], each sum
  // one chain from zero. rows and weights: [out.rows, slots].
  virtual void CombineExperts(ConstMatrixView expert_out, int slots, const int32_t* rows,
                              const float* weights, MatrixView out) = 0;

  // One step of the chains of CombineExperts, for an expert whose tokens' earlier ones have had
  // theirs: sum[tokens[i]] += weights[i] * expert_out[rows[i]]. From zeros on, and followed by Add,
  // this gives its bits.
  virtual void AccumulateExpert(ConstMatrixView expert_out, const ExpertTerms& terms,
                                MatrixView sum) = 0;

  // out += x.
  virtual void Add(ConstMatrixView x, MatrixView out) = 0;

  // out[t] += sigmoid(gate[t]) * x[t].
  virtual void AddGated(ConstMatrixView x, absl::Span<const float> gate, MatrixView out) = 0;
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_BACKEND_H_
