// What all backends share: the definitions of int8 activations and of sums, the arena memory of
// results, and the checks of arguments.
//
// Int8 activations: a row is converted in blocks of 32 columns. amax is the largest |x| of a block:
//   d = amax / 127, q = x * (127 / amax) rounded to nearest even, sum = d * (sum of q).
// If amax is below kTinyBlock, 127 / amax would overflow, so d, q and sum are 0. If a block
// contains an infinity or a NaN, q is 0, and d and sum are NaN, so that all results of the block
// are NaN.
//
// Products of int8 activations with quantised weights: an output `acc` is one chain over the blocks
// of 32 in ascending order, from zero. x, dx and sum are the activation's q, d and sum in the
// block. w is a weight's code minus the zero point, or the code's table value. panel.h defines the
// other names.
//   most types       acc = fma(s * dx, dot, acc), with dot = sum of w x and s = d, d sc or
//   2^(e-128)
//     with minimum   then acc = fma(m, sum, acc), with m of panel.h or -(dmin mn)
//   Q2_K Q3_K Q6_K   acc = fma(d * dx, I, acc), with I = sc[0] dot[0] + sc[1] dot[1] over halves
//     Q2_K           acc = fma(-(dmin * dx), M, acc), with M = mn[0] sum x[0] + mn[1] sum x[1]
// dot, I and M are exact integers below 2^24. d sc and dmin mn are exact. Each product that is
// written with * is rounded once.
//
// Sums over a row (squares of a norm, denominators of a softmax) have the same order on every
// ISA. There are 8 lanes. Lane l[j] is the sum of the elements j, j + 8, j + 16 ... in ascending
// order, from zero. Then s[j] = l[j] + l[j + 4] for j < 4, and the sum is (s[0] + s[2]) + (s[1] +
// s[3]).
// Only the reference backend differs: it computes sums in float64.
//
// A soft-cap replaces x by cap * tanh(x / cap). It does not change infinities and NaN, so that
// later checks of logits still find them.
#ifndef TIDEPOOL_KERNELS_OPS_H_
#define TIDEPOOL_KERNELS_OPS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tidepool::kernels {

inline constexpr float kTinyBlock = 0x1p-119f;

// Returns whether weights of this type are stored in blocks. With kFast, such blocks are multiplied
// as integers.
bool IsQuantised(DType dtype);

// Returns whether activations of `cols` columns have the int8 form if the precision is `precision`.
bool HasInt8Form(Precision precision, int64_t cols);

// A writable view of an Activation's memory, used while the Activation is computed.
struct ActivationBuffer {
  MatrixView values;
  int8_t* quants = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;
  int16_t* half_sums = nullptr;

  Activation View() const { return {values, quants, scales, sums, half_sums}; }
};

// Which parts of an Activation to allocate: only the int8 form, if the float rows exist already, or
// all parts.
enum class ActivationParts : uint8_t { kInt8Only, kAll };

ActivationBuffer AllocateActivation(int64_t rows, int64_t cols, Precision precision,
                                    ActivationParts parts, Arena* arena);

// An upper bound of the arena bytes of one Activation, including alignment.
size_t ActivationBytes(int64_t rows, int64_t cols);

// Allocates the memory of MatMulHead: [threads][target.rows()]. Only the elements for argmax rows
// are used. So the size does not depend on how many rows are argmax rows.
ArgMax* AllocateHeadScratch(const HeadTarget& target, int threads, Arena* arena);

// Takes output `index` of a row into account in the row's argmax. Must be called in ascending order
// of index.
constexpr void AddToArgMax(int32_t index, float value, ArgMax* best) {
  if (!(value < __builtin_inff()) && best->unsound < 0) {
    best->unsound = index;
    best->unsound_value = value;
  }
  if (value > (best->index < 0 ? -__builtin_inff() : best->value)) {
    best->index = index;
    best->value = value;
  }
}

// Merges the argmax of two sets of outputs of one row.
constexpr void MergeArgMax(const ArgMax& other, ArgMax* best) {
  if (other.unsound >= 0 && (best->unsound < 0 || other.unsound < best->unsound)) {
    best->unsound = other.unsound;
    best->unsound_value = other.unsound_value;
  }
  if (other.index < 0) return;
  const bool wins = best->index < 0 || other.value > best->value ||
                    (other.value == best->value && other.index < best->index);
  if (!wins) return;
  best->index = other.index;
  best->value = other.value;
}

// The memory of GroupedFfn. It grows with the total number of rows, but not with the number of
// groups.
struct GroupScratch {
  int64_t* offsets = nullptr;  // [groups]: first row of each group in `hidden`
  ActivationBuffer hidden;     // [rows of all groups, width]
};
GroupScratch AllocateGroupScratch(absl::Span<const ExpertGroup> groups, Precision precision,
                                  Arena* arena);

// Allocates the result of Attend.
ActivationBuffer AllocateAttended(const AttendCall& call, Precision precision, Arena* arena);

// Returns an upper bound of all other arena bytes of Attend. The exact number depends on the slots.
// The bound depends only on the shapes of the call and on `threads`, the backend's number of
// threads.
size_t AttendScratchBytes(const AttendCall& call, int threads);

// The KV slots [begin, end) that one query row sees. The range is never empty.
struct SlotRange {
  int64_t begin = 0;
  int64_t end = 0;
};
SlotRange VisibleSlots(const KvSpan& span, int64_t row);

// Returns the index of S[row][col] in a unit of DeltaNet's state.
inline int64_t DeltaStateIndex(int k_dim, int v_dim, int row, int col) {
  const int first = col / kDeltaTileCols * kDeltaTileCols;
  const int width = v_dim - first < kDeltaTileCols ? v_dim - first : kDeltaTileCols;
  return int64_t{first} * k_dim + int64_t{row} * width + (col - first);
}

// Each function ends the process if the arguments of the op contradict each other.
void CheckGatherRows(ConstMatrixView x, absl::Span<const int64_t> rows, ConstMatrixView out);
void CheckCopyHeads(const HeadCopy& copy, ConstMatrixView from, ConstMatrixView to);
void CheckScanRows(ConstMatrixView x, float limit);
void CheckQuantizeInTwo(const Activation& x);
void CheckMatMul(const Activation& x, const PackedMatrix& weight, Precision precision);
void CheckTarget(const Activation& x, const MatMulTarget& target, Precision precision);
void CheckHead(const Activation& x, const HeadTarget& target, Precision precision);
void CheckHeads(const Activation& x, absl::Span<const PackedMatrix> weights, ConstMatrixView out,
                Precision precision);
void CheckGlu(const Activation& x, const FfnWeights& ffn, Precision precision);
void CheckStoreKv(ConstMatrixView k, ConstMatrixView v, const KvLayer& layer,
                  absl::Span<const KvSpan> spans);
void CheckAttend(const AttendCall& call);
void CheckCausalConv(const CausalConvCall& call);
void CheckDeltaNet(const DeltaNetCall& call);
void CheckGatedNorm(ConstMatrixView x, ConstMatrixView z, absl::Span<const float> weight);
void CheckRope(ConstMatrixView x, int head_dim, ConstMatrixView cos, ConstMatrixView sin);
void CheckGate(ConstMatrixView logits, const GateSpec& spec);
void CheckGroupedFfn(const Activation& x, absl::Span<const ExpertGroup> groups, ConstMatrixView out,
                     Precision precision);
void CheckExpertTerms(ConstMatrixView expert_out, const ExpertTerms& terms, ConstMatrixView sum);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_OPS_H_
