// KernelBackend: the dozen operations of a transformer's forward pass. Each is as large as fusion
// requires. reference/ has plain loops, which define each op; cpu/ has the fast implementations.
//
// Bits. A row's result depends only on that row's inputs: never on the other rows of the batch, on
// the number of threads, or on the ISA. To ensure this, each output is one chain of fused
// multiply-adds over ascending K (for quantised weights: the chain of ops.h over blocks of 32).
// Sums over a row have the fixed order that ops.h defines, and exp and silu are our own polynomials
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

// kFast: activations that are multiplied with quantised weights are int8 in blocks of 32. kExact:
// everything is float32.
enum class Precision : uint8_t { kFast, kExact };

// The left operand of MatMul: float rows. If the backend's precision is kFast and cols is a
// multiple of 32, it also has the same rows as int8 blocks, computed once for all weights that use
// them. Lives in the Arena that created it.
struct Activation {
  ConstMatrixView values;              // [rows, cols]
  const int8_t* quants = nullptr;      // [rows, cols]; null without the int8 form
  const float* scales = nullptr;       // [rows, cols / 32]: value = scale * quant
  const float* sums = nullptr;         // [rows, cols / 32]: scale * (sum of the block's quants)
  const int16_t* half_sums = nullptr;  // [rows, cols / 16]: sums of quants over halves of blocks
};

// What MatMul does with a product: replace `out`, or add to it (a residual stream).
enum class Store : uint8_t { kReplace, kAdd };

struct MatMulTarget {
  PackedMatrix weight;
  MatrixView out;                // [x.rows, weight.rows]
  absl::Span<const float> bias;  // [weight.rows], or empty; added after the whole chain
  Store store = Store::kReplace;
};

// The data that greedy sampling needs from one row of a product: the largest output, with the
// lowest index among equal ones. A NaN never counts as the largest.
struct ArgMax {
  int32_t index = -1;  // -1: all are -infinity or NaN
  float value = 0;
  int32_t unsound = -1;  // index of the first output that is NaN or +infinity; -1: none
  float unsound_value = 0;
};

// A product with rows that are needed completely (in `out`), followed by rows of which only the
// argmax is needed (in `best`). Row r is the sum of the products of x's rows r, r + rows, ...
// (`terms` of them). Then come, in this order, the bias, the scale and the soft-cap. `best` is the
// argmax of the outputs after them, with the same bits as `out`.
struct HeadTarget {
  PackedMatrix weight;
  absl::Span<const float> bias;  // [weight.rows], or empty
  int terms = 1;
  MatrixView out;           // [rows, weight.rows]
  absl::Span<ArgMax> best;  // over the outputs [0, argmax_vocab)
  int64_t argmax_vocab = 0;
  float scale = 1;     // outputs are multiplied by it
  float soft_cap = 0;  // if not 0, outputs become soft_cap * tanh(output / soft_cap); see ops.h

  int64_t rows() const { return out.rows + static_cast<int64_t>(best.size()); }
};

// How RoPE pairs the rotated elements of a head: (2i, 2i+1), or (i, i + n_rot/2).
enum class RopeStyle : uint8_t { kInterleaved, kHalves };

// Tokens of one KV block, and of one segment of attention's fold. Part of the numerics.
inline constexpr int kKvBlockTokens = 32;
inline constexpr int kKvSegmentTokens = 128;

// One layer's part of a paged KV arena. Block b of the arena begins at arena + b * block_bytes. In
// it, at k_offset, are keys [kv_heads][k_dim][kKvBlockTokens] (lanes hold tokens), and at v_offset,
// values [kv_heads][kKvBlockTokens][v_dim].
//
// With kQ8_0, each head has float16 scales, followed by the elements as int8 in the same order. An
// element is scale * quant. 32 dimensions of a token share a scale, so that a token's quants only
// depend on that token: keys have scales [k_dim / 32][kKvBlockTokens], values
// [kKvBlockTokens][v_dim / 32]. Quants are defined in ops.h, with the scale rounded to float16.
//
// With values_in_keys, the first v_dim elements of a key are the value (MLA's compressed KV).
// Blocks then have no values, and v_offset is not used.
struct KvLayer {
  DType dtype = DType::kF16;  // see IsKvType
  int kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  std::byte* arena = nullptr;
  size_t block_bytes = 0;
  size_t k_offset = 0;
  size_t v_offset = 0;
  bool values_in_keys = false;  // requires v_dim <= k_dim
};

// True if KV can have this type: kF32, kF16, kBF16, and kQ8_0 if head_dim is a multiple of 32.
inline bool IsKvType(DType dtype, int head_dim) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         (dtype == DType::kQ8_0 && head_dim % BlockElements(dtype) == 0);
}

// Bytes of one block's keys, or values, of one KV head.
inline size_t KvHeadBytes(DType dtype, int head_dim) {
  return BlockCount(dtype, int64_t{kKvBlockTokens} * head_dim) * BlockBytes(dtype);
}

// The keys that a query row sees: up to itself, or up to the end of its span.
enum class Mask : uint8_t { kCausal, kBidirectional };

// Rows [first_row, first_row + rows) of the batch have KV slots [first_slot, first_slot + rows) of
// one sequence. Slot s is in block blocks[s / kKvBlockTokens].
struct KvSpan {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_slot = 0;
  absl::Span<const int32_t> blocks;
  Mask mask = Mask::kCausal;
  int64_t window = 0;  // a row at slot p sees slots > p - window; 0: all
};

// The input of KernelBackend::Attend: the queries of a batch, and one layer's KV.
struct AttendCall {
  ConstMatrixView q;  // [rows, heads * k_dim]
  int heads = 0;
  float scale = 0;  // of q k^T
  const KvLayer& layer;
  absl::Span<const KvSpan> spans;
  // If not 0, scores become soft_cap * tanh(score / soft_cap), after the scale.
  float soft_cap = 0;
  // [heads], or empty. An additional score per head, which is neither scaled nor capped. It is part
  // of the softmax's denominator and has no value (gpt-oss).
  absl::Span<const float> sinks;
};

// How a router's logits become the scores of experts.
enum class GateScore : uint8_t {
  kSoftmax,          // softmax over all experts
  kSigmoid,          // sigmoid of each
  kSoftmaxOfChosen,  // the logits; the weights are the softmax over the chosen logits
};

// How the selection scores of a group of experts become the score of the group.
enum class GroupScore : uint8_t {
  kMax,
  kSumOfTwo,  // the sum of the two largest; if the group has one expert, its score
};

// How router logits become expert weights:
// 1. The score of each expert. Plus `selection_bias`, it is the selection score.
// 2. With groups (equal parts of the experts, in order), only the experts of the `groups_kept`
//    groups with the highest scores remain.
// 3. The top_k remaining experts with the highest selection scores are chosen, in descending order.
// 4. Their weights are their scores, without the bias. With `normalize`, they are divided by their
//    sum plus `normalize_epsilon`. At the end they are multiplied by `scale`.
// Ties, of experts and of groups, go to the lower id. A NaN is below every number. A NaN among the
// logits makes all shares of kSoftmax NaN.
struct GateSpec {
  int experts = 0;
  int top_k = 0;  // at most the number of remaining experts
  bool normalize = false;
  GateScore score = GateScore::kSoftmax;
  absl::Span<const float> selection_bias;  // [experts], or empty
  int groups = 1;
  int groups_kept = 1;
  GroupScore group_score = GroupScore::kMax;
  float scale = 1;
  float normalize_epsilon = 0;
};

// The element-wise part of a gated FFN, of g (gate) and u (up).
enum class GluForm : uint8_t {
  kSwiGlu,         // silu(g) u
  kGeGlu,          // gelu(g) u, with gelu(g) = g (1 + erf(g / sqrt(2))) / 2
  kGeGluTanh,      // the same with gelu's approximation by tanh (gelu_pytorch_tanh)
  kClampedSwiGlu,  // (u' + 1) g' sigmoid(alpha g'), g' = min(g, limit), u' = u in [-limit, limit]
};
struct Glu {
  GluForm form = GluForm::kSwiGlu;
  float alpha = 1.702f;  // only for kClampedSwiGlu, as in gpt-oss
  float limit = 7;
};

// A gated FFN, such as one expert: down(glu(gate x + gate_bias, up x + up_bias)) + down_bias.
struct FfnWeights {
  PackedMatrix gate;  // [width, hidden]
  PackedMatrix up;    // [width, hidden]
  PackedMatrix down;  // [hidden, width]
  // One element per row of their matrix, or empty.
  absl::Span<const float> gate_bias;
  absl::Span<const float> up_bias;
  absl::Span<const float> down_bias;
  Glu glu;
};

// One expert and the rows that chose it: row rows[i] of x goes to row out_rows[i] of the output.
struct ExpertGroup {
  const FfnWeights* weights = nullptr;
  absl::Span<const int32_t> rows;
  absl::Span<const int32_t> out_rows;
};

// Outputs of one expert that are added to its tokens' sums: row rows[i] of its output, times
// weights[i], to token tokens[i]. The tokens are distinct.
struct ExpertTerms {
  absl::Span<const int32_t> rows;
  absl::Span<const int32_t> tokens;
  absl::Span<const float> weights;
};

// Thread-compatible: one thread calls. An implementation may use its own thread pool inside a call.
// All scratch comes from the caller's Arena.
class KernelBackend {
 public:
  virtual ~KernelBackend() = default;

  // Human-readable, such as "cpu avx2, 2 threads".
  virtual std::string Description() const = 0;
  virtual Precision precision() const = 0;
  // Number of threads that work on one op, including the caller. They determine the scratch sizes
  // of ops.h.
  virtual int threads() const { return 1; }

  // out[i] = row ids[i] of table, dequantised. Requires: ids in [0, table.rows).
  virtual void Embed(const PackedMatrix& table, absl::Span<const int32_t> ids, MatrixView out) = 0;

  // Converts x to an Activation. Its values are x itself, not a copy.
  virtual Activation Quantize(ConstMatrixView x, Arena* arena) = 0;

  // RMS norm of each row, times weight: x * rsqrt(mean(x^2) + eps) * weight.
  virtual Activation Norm(ConstMatrixView x, absl::Span<const float> weight, float eps,
                          Arena* arena) = 0;

  // Same within each head, in place. x: [rows, heads * weight.size()].
  virtual void HeadNorm(MatrixView x, absl::Span<const float> weight, float eps) = 0;

  // Computes one product per target, all with the same x.
  virtual void MatMul(const Activation& x, absl::Span<const MatMulTarget> targets) = 0;

  // The product with the model's head. Requires: x.rows = target.terms * target.rows().
  virtual void MatMulHead(const Activation& x, const HeadTarget& target, Arena* arena) = 0;

  // The product of each head's part of x with the head's own weight. x has weights.size() heads of
  // weight.cols elements, `out` as many heads of weight.rows. All weights have the same type and
  // shape. Multi-head latent attention (MLA) needs this for its absorbed form.
  virtual void MatMulHeads(const Activation& x, absl::Span<const PackedMatrix> weights,
                           MatrixView out) = 0;

  // The inner part of a gated FFN, before `down`: glu(gate x + gate_bias, up x + up_bias),
  // [x.rows, gate.rows].
  virtual Activation MatMulGlu(const Activation& x, const FfnWeights& ffn, Arena* arena) = 0;

  // cos and sin [positions, inv_freq.size()] of position * inv_freq, times `scale`.
  virtual void RopeTable(absl::Span<const int64_t> positions, absl::Span<const double> inv_freq,
                         float scale, MatrixView cos, MatrixView sin) = 0;

  // Rotates the first 2 * cos.cols elements of each head of each row, in place. The others stay. To
  // rotate elements further back in each head, pass a view that begins at the first of them.
  virtual void Rope(MatrixView x, int head_dim, RopeStyle style, ConstMatrixView cos,
                    ConstMatrixView sin) = 0;

  // Writes the rows' keys and values into their KV slots, in the layer's type.
  // k: [rows, kv_heads * k_dim], v: [rows, kv_heads * v_dim]. With values_in_keys, v has 0 columns.
  virtual void StoreKv(ConstMatrixView k, ConstMatrixView v, const KvLayer& layer,
                       absl::Span<const KvSpan> spans) = 0;

  // Softmax attention with grouped queries over the stored KV. Call StoreKv for the same spans
  // first. Result: [rows, heads * v_dim]. Each row processes its KV in segments of kKvSegmentTokens
  // at absolute slots: a softmax and a chain over each segment, merged in ascending order.
  virtual Activation Attend(const AttendCall& call, Arena* arena) = 0;

  // logits [rows, experts] > ids and weights, each [rows, top_k], in descending order of selection
  // score.
  virtual void Gate(ConstMatrixView logits, const GateSpec& spec, int32_t* ids, float* weights) = 0;

  // out[group.out_rows[i]] = the FFN of x's row group.rows[i], for every group.
  virtual void GroupedFfn(const Activation& x, absl::Span<const ExpertGroup> groups, MatrixView out,
                          Arena* arena) = 0;

  // out[t] += sum over slots, in the given order, of weights[t][s] * expert_out[rows[t][s]]. Each
  // sum is one chain from zero. rows and weights: [out.rows, slots].
  virtual void CombineExperts(ConstMatrixView expert_out, int slots, const int32_t* rows,
                              const float* weights, MatrixView out) = 0;

  // One step of CombineExperts' chains, for one expert, after the steps of the tokens' earlier
  // experts: sum[tokens[i]] += weights[i] * expert_out[rows[i]]. Starting from zeros, and followed
  // by Add, this gives the same bits as CombineExperts.
  virtual void AccumulateExpert(ConstMatrixView expert_out, const ExpertTerms& terms,
                                MatrixView sum) = 0;

  // out += x.
  virtual void Add(ConstMatrixView x, MatrixView out) = 0;

  // out += scale * x, with one rounding.
  virtual void AddScaled(ConstMatrixView x, float scale, MatrixView out) = 0;

  // x *= scale.
  virtual void Scale(MatrixView x, float scale) = 0;

  // out[t] += sigmoid(gate[t]) * x[t].
  virtual void AddGated(ConstMatrixView x, absl::Span<const float> gate, MatrixView out) = 0;
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_BACKEND_H_
