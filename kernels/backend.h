// KernelBackend: the operations ("ops") of a transformer's forward pass. Steps that should be fused
// are one op. The plain loops in reference/ define each op; cpu/ has fast implementations.
//
// Rules for bit-identical results: a row's result depends only on that row's inputs. It never
// depends on the other rows of the batch, on the number of threads, or on the instruction set
// (ISA). To ensure this, each output is one chain of fused multiply-adds over ascending K, the
// index of the inner dimension. For quantised weights, it is the chain over blocks of 32 that ops.h
// defines. Sums over a row are added in the fixed order that ops.h defines. exp and silu are our
// own polynomials (math.h).
#ifndef TIDEPOOL_KERNELS_BACKEND_H_
#define TIDEPOOL_KERNELS_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/memory.h"
#include "kernels/packed_matrix.h"
#include "kernels/recurrent.h"
#include "kernels/tensor.h"

namespace tidepool::kernels {

// With kFast, activations that are multiplied with quantised weights are converted to int8 in
// blocks of 32. With kExact, everything is float32.
enum class Precision : uint8_t { kFast, kExact };

// The left operand of MatMul: rows of floats. If the backend's precision is kFast and cols is a
// multiple of 32, the same rows also exist as int8 blocks. The blocks are computed once, and used
// by all products with this Activation. The memory belongs to the Arena in which the Activation was
// created.
struct Activation {
  ConstMatrixView values;          // [rows, cols]
  const int8_t* quants = nullptr;  // [rows, cols]; null if there is no int8 form
  const float* scales = nullptr;   // [rows, cols / 32]: value = scale * quant
  const float* sums = nullptr;     // [rows, cols / 32]: scale * (sum of the block's quants)
  // [rows, cols / 16]: the sum of the quants of each half block
  const int16_t* half_sums = nullptr;
};

// What MatMul does with a product: it replaces `out`, or adds to `out` (a residual stream).
enum class Store : uint8_t { kReplace, kAdd };

struct MatMulTarget {
  PackedMatrix weight;
  MatrixView out;                // [x.rows, weight.rows]
  absl::Span<const float> bias;  // [weight.rows], or empty; added after the chain is complete
  Store store = Store::kReplace;
};

// What ScanRows finds in one row.
struct RowScan {
  int32_t first_large = -1;  // index of the first element that is NaN or reaches the limit; or -1
  float large = 0;           // that element
  bool all_zero = true;
};

// Copies `cols` elements of each head: from heads of `from_dim` elements, beginning at element
// `from_first` of the head, to heads of `to_dim` elements, beginning at element `to_first`.
struct HeadCopy {
  int heads = 0;
  int cols = 0;
  int from_dim = 0;
  int from_first = 0;
  int to_dim = 0;
  int to_first = 0;
};

// What greedy sampling needs from one row of a product: the largest output. If several outputs are
// equally large, it is the one with the lowest index. A NaN is never the largest.
struct ArgMax {
  int32_t index = -1;  // -1 if all outputs are -infinity or NaN
  float value = 0;
  int32_t unsound = -1;  // index of the first output that is NaN or +infinity; -1 if there is none
  float unsound_value = 0;
};

// A product for which some rows are needed completely and others only as argmax. The complete rows
// come first and are written to `out`; the argmax of each other row is written to `argmax`. Row r
// is the sum of `terms` products, of x's rows r, r + rows(), r + 2 rows() ... The bias is added to
// this sum, then it is multiplied by the scale, then the soft-cap is applied. `argmax` is the
// argmax of the final outputs, which have the same bits as in `out`.
struct HeadTarget {
  PackedMatrix weight;
  absl::Span<const float> bias;  // [weight.rows], or empty
  int terms = 1;
  MatrixView out;             // [rows, weight.rows]
  absl::Span<ArgMax> argmax;  // argmax over the outputs [0, argmax_vocab)
  int64_t argmax_vocab = 0;
  float scale = 1;     // outputs are multiplied by this
  float soft_cap = 0;  // if not 0, an output becomes soft_cap * tanh(output / soft_cap); see ops.h

  int64_t rows() const { return out.rows + static_cast<int64_t>(argmax.size()); }
};

// How RoPE pairs the rotated elements of a head: (2i, 2i + 1), or (i, i + n_rot / 2).
enum class RopeStyle : uint8_t { kInterleaved, kHalves };

// Number of tokens in one KV block, and in one segment of attention. Both affect the bits of
// results.
inline constexpr int kKvBlockTokens = 32;
inline constexpr int kKvSegmentTokens = 128;

// One layer's part of a paged KV arena. Block b of the arena begins at arena + b * block_bytes. In
// a block, the keys [kv_heads][k_dim][kKvBlockTokens] are at k_offset (a vector's lanes hold
// tokens), and the values [kv_heads][kKvBlockTokens][v_dim] are at v_offset.
//
// With kQ8_0, each head has float16 scales, followed by the elements as int8 in the order above. An
// element is scale * quant. 32 dimensions of one token share a scale, so that the quants of a token
// depend only on that token. Scales of keys are [k_dim / 32][kKvBlockTokens], and scales of values
// are [kKvBlockTokens][v_dim / 32]. ops.h defines the quants; here the scale is rounded to float16.
//
// With values_in_keys, the first v_dim elements of a key are also its value (MLA's compressed KV).
// Blocks then have no values, and v_offset is not used.
struct KvLayer {
  DType dtype = DType::kF16;  // IsKvType lists the possible types
  int kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  std::byte* arena = nullptr;
  size_t block_bytes = 0;
  size_t k_offset = 0;
  size_t v_offset = 0;
  bool values_in_keys = false;  // if true, v_dim must be at most k_dim
};

// Returns whether KV can have this type. It can be kF32, kF16 or kBF16, and kQ8_0 if head_dim is a
// multiple of 32.
inline bool IsKvType(DType dtype, int head_dim) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         (dtype == DType::kQ8_0 && head_dim % BlockElements(dtype) == 0);
}

// Bytes of one KV head's keys (or values) in one block.
inline size_t KvHeadBytes(DType dtype, int head_dim) {
  return BlockCount(dtype, int64_t{kKvBlockTokens} * head_dim) * BlockBytes(dtype);
}

// Which keys a query row sees: those up to the row itself, or those up to the end of its span.
enum class Mask : uint8_t { kCausal, kBidirectional };

// A part of the batch that belongs to one sequence. Rows [first_row, first_row + rows) of the batch
// use the KV slots [first_slot, first_slot + rows) of the sequence. Slot s is in block blocks[s /
// kKvBlockTokens].
struct KvSpan {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_slot = 0;
  absl::Span<const int32_t> blocks;
  Mask mask = Mask::kCausal;
  int64_t window = 0;  // a row at slot p sees only slots > p - window; 0: no window
};

// The input of KernelBackend::Attend: the queries of a batch, and one layer's KV.
struct AttendCall {
  ConstMatrixView q;  // [rows, heads * k_dim]
  int heads = 0;
  float scale = 0;  // factor of q k^T
  const KvLayer& layer;
  absl::Span<const KvSpan> spans;
  // If not 0, a score becomes soft_cap * tanh(score / soft_cap) after it was scaled.
  float soft_cap = 0;
  // [heads], or empty. Each head gets one more score, its sink. It is neither scaled nor capped. It
  // only adds to the denominator of the softmax, because it has no value (gpt-oss).
  absl::Span<const float> sinks;
  // [rows, heads * v_dim], or without data. The result is multiplied by sigmoid(gate) (Qwen3-Next).
  ConstMatrixView gate = {};
};

// How the logits of a router become the scores of experts.
enum class GateScore : uint8_t {
  kSoftmax,          // softmax over all experts
  kSigmoid,          // sigmoid of each logit
  kSoftmaxOfChosen,  // the score is the logit; the weights are the softmax over the chosen logits
};

// How a group of experts gets its score from the selection scores of its experts.
enum class GroupScore : uint8_t {
  kMax,
  kSumOfTwo,  // the sum of the two largest; if the group has one expert, that expert's score
};

// How router logits become expert weights:
// 1. Each expert gets a score (GateScore). Its selection score is the score plus its
//    `selection_bias`.
// 2. If there are groups (equal parts of the experts, in order), only the experts in the
//    `groups_kept` groups with the highest group scores remain.
// 3. Of the remaining experts, the top_k with the highest selection scores are chosen, in
//    descending order.
// 4. The weight of a chosen expert is its score, without the bias. With `normalize`, weights are
//    divided by their sum plus `normalize_epsilon`. Finally, weights are multiplied by `scale`.
// If experts or groups have equal scores, the one with the lower id is chosen. A NaN is lower than
// every number. With kSoftmax, a NaN among the logits makes all scores NaN.
struct GateSpec {
  int experts = 0;
  int top_k = 0;  // at most the number of experts that remain after step 2
  bool normalize = false;
  GateScore score = GateScore::kSoftmax;
  absl::Span<const float> selection_bias;  // [experts], or empty
  int groups = 1;
  int groups_kept = 1;
  GroupScore group_score = GroupScore::kMax;
  float scale = 1;
  float normalize_epsilon = 0;
};

// The element-wise function of a gated FFN, of g (the gate) and u (up).
enum class GluForm : uint8_t {
  kSwiGlu,     // silu(g) u
  kGeGlu,      // gelu(g) u, with gelu(g) = g (1 + erf(g / sqrt(2))) / 2
  kGeGluTanh,  // like kGeGlu, with gelu approximated by tanh (gelu_pytorch_tanh)
  // (u' + 1) g' sigmoid(alpha g'), with g' = min(g, limit) and u' = u clamped to [-limit, limit]
  kClampedSwiGlu,
};
struct Glu {
  GluForm form = GluForm::kSwiGlu;
  float alpha = 1.702f;  // alpha and limit are only for kClampedSwiGlu; the defaults are gpt-oss's
  float limit = 7;
};

// The weights of a gated FFN, such as one expert: down(glu(gate x + gate_bias, up x + up_bias)) +
// down_bias.
struct FfnWeights {
  PackedMatrix gate;  // [width, hidden]
  PackedMatrix up;    // [width, hidden]
  PackedMatrix down;  // [hidden, width]
  // Each bias has one element per row of its matrix, or is empty.
  absl::Span<const float> gate_bias;
  absl::Span<const float> up_bias;
  absl::Span<const float> down_bias;
  Glu glu;
};

// One expert and the rows of x that it processes. The result for row rows[i] is written to row
// out_rows[i] of the output.
struct ExpertGroup {
  const FfnWeights* weights = nullptr;
  absl::Span<const int32_t> rows;
  absl::Span<const int32_t> out_rows;
};

// Outputs of one expert that are added to the sums of tokens. Row rows[i] of the outputs, times
// weights[i], is added to the sum of token tokens[i]. The tokens are distinct.
struct ExpertTerms {
  absl::Span<const int32_t> rows;
  absl::Span<const int32_t> tokens;
  absl::Span<const float> weights;
};

// A copy that BeginCopyIn has begun. The first copy of a backend is 1.
using CopyTicket = int64_t;

// A place in the sequence of calls: all ops and copies that were called before MarkOps returned the
// mark are before it. 0 is before all of them.
using OpMark = int64_t;

// Thread-compatible: one thread may call at a time. An implementation may use its own thread pool
// inside a call. All scratch memory comes from the caller's Arena. Large because each op is a
// method.
//
// These arguments are in memory(), unless a comment says otherwise: matrix views,
// PackedMatrix::data, arenas of KV and of states, spans of weights (norms, biases, sinks, `decay`
// and so on), the gate of AddGated, HeadTarget::argmax, and what Gate and ScanRows write. Ops may
// run after the call has returned, so host code must not access them, except through CopyIn and
// CopyOut.
//
// These are in host memory: the structs of arguments (FfnWeights, KvLayer, StateArray and so on),
// and lists: ids, rows, positions, frequencies, block tables, and the rows, tokens and weights of
// CombineExperts and AccumulateExpert. An op reads them before it returns.
class KernelBackend {
 public:
  virtual ~KernelBackend() = default;

  // A description for people, such as "cpu avx2, 2 threads".
  virtual std::string Description() const = 0;
  virtual Precision precision() const = 0;
  // Number of threads that work on one op, including the calling thread. The sizes of scratch
  // memory in ops.h depend on it.
  virtual int threads() const { return 1; }

  // The memory that ops read and write.
  virtual Memory* memory() { return HostMemory(); }

  // Copies host memory into the backend's memory. Reads `from` before it returns.
  virtual void CopyIn(absl::Span<const std::byte> from, std::byte* to) = 0;
  // Waits for all earlier ops, then copies backend memory into host memory. Returns the error of
  // Sync.
  virtual absl::Status CopyOut(const std::byte* from, absl::Span<std::byte> to) = 0;
  // Copies backend memory to other backend memory, which must not overlap.
  virtual void CopyWithin(const std::byte* from, std::byte* to, size_t bytes) = 0;
  // Waits for all earlier ops. Returns INTERNAL with the device's message if an op failed. After
  // such an error, all later calls return it too.
  virtual absl::Status Sync() = 0;

  // Locks pages of host memory, so that BeginCopyIn can read them. Returns RESOURCE_EXHAUSTED if
  // the system does not allow it; nothing is locked then. `data` and the size must be multiples of
  // the page size. Must be undone by UnpinHost, with the same memory, before the memory is freed.
  virtual absl::Status PinHost(absl::Span<std::byte> memory) = 0;
  virtual void UnpinHost(absl::Span<std::byte> memory) = 0;
  virtual OpMark MarkOps() = 0;
  // Begins a copy of pinned host memory into the backend's memory. The copy runs after all ops
  // before the mark `after`, after earlier copies into the same memory, and in parallel with other
  // ops. So ops that read or wrote `to` earlier must be before the mark, and later ones must be
  // called after AwaitCopy. `from` is inside one range that was pinned. Until the copy has ended,
  // `from` must not change.
  virtual CopyTicket BeginCopyIn(absl::Span<const std::byte> from, std::byte* to, OpMark after) = 0;
  // Ops that are called after AwaitCopy run after the copy. Does not block the host.
  virtual void AwaitCopy(CopyTicket copy) = 0;
  // Returns how long the copy took, or nullopt if it has not ended. Returns the error of Sync if
  // the copy failed. Does not block the host. The backend keeps a record of the copy until CopyTime
  // has returned a time. So call CopyTime until it returns a time, and not again. AwaitCopy may
  // still be called.
  virtual absl::StatusOr<std::optional<absl::Duration>> CopyTime(CopyTicket copy) = 0;

  // out = 0.
  virtual void Zero(MatrixView out) = 0;

  // out[i] = x[rows[i]].
  virtual void GatherRows(ConstMatrixView x, absl::Span<const int64_t> rows, MatrixView out) = 0;

  // Copies parts of heads. `from` and `to` have the same number of rows.
  virtual void CopyHeads(const HeadCopy& copy, ConstMatrixView from, MatrixView to) = 0;

  // Finds, in each row of x, the first element that is NaN or whose magnitude is at least `limit`.
  // Also finds whether all elements of the row are 0. `limit` is above 0 and may be infinity.
  // out: [x.rows], in the backend's memory.
  virtual void ScanRows(ConstMatrixView x, float limit, RowScan* out) = 0;

  // out[i] = row ids[i] of `table`, dequantised. Requires: ids are in [0, table.rows).
  virtual void Embed(const PackedMatrix& table, absl::Span<const int32_t> ids, MatrixView out) = 0;

  // Converts x to an Activation. The Activation's `values` point to x, without a copy.
  virtual Activation Quantize(ConstMatrixView x, Arena* arena) = 0;

  // Splits each row into two int8 rows: its rounded value, and what the rounding left over. The
  // result has 2 * x.rows rows: first all rows of x, then for each row of x the row x - scale *
  // quant. This row is rounded after the product and after the difference. Requires: x has the int8
  // form.
  virtual Activation QuantizeInTwo(const Activation& x, Arena* arena) = 0;

  // The RMS norm of each row, multiplied by weight: x * rsqrt(mean(x^2) + eps) * weight.
  virtual Activation Norm(ConstMatrixView x, absl::Span<const float> weight, float eps,
                          Arena* arena) = 0;

  // The RMS norm of each head, in place. x: [rows, heads * weight.size()].
  virtual void HeadNorm(MatrixView x, absl::Span<const float> weight, float eps) = 0;

  // Computes one product for each target. All targets use the same x.
  virtual void MatMul(const Activation& x, absl::Span<const MatMulTarget> targets) = 0;

  // Computes the product with the model's output head. Requires: x.rows = target.terms *
  // target.rows().
  virtual void MatMulHead(const Activation& x, const HeadTarget& target, Arena* arena) = 0;

  // Multiplies each head's part of x with the weight of that head. A row of x has weights.size()
  // heads of weight.cols elements, and a row of `out` has the same number of heads of weight.rows
  // elements. All weights have the same type and shape. The absorbed form of multi-head latent
  // attention (MLA) needs this.
  virtual void MatMulHeads(const Activation& x, absl::Span<const PackedMatrix> weights,
                           MatrixView out) = 0;

  // Computes the inner part of a gated FFN, which is everything before `down`: glu(gate x +
  // gate_bias, up x + up_bias). Returns [x.rows, gate.rows].
  virtual Activation MatMulGlu(const Activation& x, const FfnWeights& ffn, Arena* arena) = 0;

  // Writes the cos and sin of position * inv_freq, each multiplied by `scale`. Both are [positions,
  // inv_freq.size()].
  virtual void RopeTable(absl::Span<const int64_t> positions, absl::Span<const double> inv_freq,
                         float scale, MatrixView cos, MatrixView sin) = 0;

  // Rotates the first 2 * cos.cols elements of each head of each row, in place. The other elements
  // do not change. To rotate elements that are not the first of each head, pass a view that begins
  // at the first element to rotate.
  virtual void Rope(MatrixView x, int head_dim, RopeStyle style, ConstMatrixView cos,
                    ConstMatrixView sin) = 0;

  // Writes the keys and values of the rows into their KV slots, in the layer's type. k: [rows,
  // kv_heads * k_dim], v: [rows, kv_heads * v_dim]. With values_in_keys, v has 0 columns.
  virtual void StoreKv(ConstMatrixView k, ConstMatrixView v, const KvLayer& layer,
                       absl::Span<const KvSpan> spans) = 0;

  // Softmax attention with grouped queries over the stored KV. StoreKv must be called for the same
  // spans before. Returns [rows, heads * v_dim]. Each row processes its KV in segments of
  // kKvSegmentTokens slots, which begin at multiples of kKvSegmentTokens. Each segment has its own
  // softmax and its own chain; segments are merged in ascending order.
  virtual Activation Attend(const AttendCall& call, Arena* arena) = 0;

  // Computes a causal convolution in place, and advances its state.
  virtual void CausalConv(const CausalConvCall& call) = 0;

  // Computes the gated delta rule, and advances its state.
  virtual void DeltaNet(const DeltaNetCall& call) = 0;

  // The RMS norm of each head of x, multiplied by weight and by silu(z). x and z: [rows, heads *
  // weight.size()].
  virtual Activation GatedNorm(ConstMatrixView x, ConstMatrixView z, absl::Span<const float> weight,
                               float eps, Arena* arena) = 0;

  // Chooses experts from logits [rows, experts]. Writes ids and weights, each [rows, top_k], in
  // descending order of selection score. ids and weights are in the backend's memory.
  virtual void Gate(ConstMatrixView logits, const GateSpec& spec, int32_t* ids, float* weights) = 0;

  // For every group: out[group.out_rows[i]] = the FFN of x's row group.rows[i].
  virtual void GroupedFfn(const Activation& x, absl::Span<const ExpertGroup> groups, MatrixView out,
                          Arena* arena) = 0;

  // out[t] += the sum over s < slots, in this order, of weights[t][s] * expert_out[rows[t][s]].
  // Each sum is one chain that begins at zero. rows and weights: [out.rows, slots].
  virtual void CombineExperts(ConstMatrixView expert_out, int slots, const int32_t* rows,
                              const float* weights, MatrixView out) = 0;

  // One step of the chains of CombineExperts, for one expert: sum[tokens[i]] += weights[i] *
  // expert_out[rows[i]]. A token's experts must be accumulated in the order of their slots in
  // CombineExperts. If `sum` begins at zero and is added with Add at the end, the result has the
  // same bits as CombineExperts.
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
