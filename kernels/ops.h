// What every backend shares: how int8 activations and fixed-shape sums are defined, the memory that
// results take in an Arena, and the checks of arguments.
//
// Int8 activations, per block of 32 columns of a row. amax is the block's largest |x|;
//   d = amax / 127, q = x * (127 / amax) rounded to nearest even, sum = d * (sum of q).
// amax below kTinyBlock: d, q and sum are 0 (127 / amax would overflow). A block that holds an
// infinity or a NaN: q is 0, d and sum are NaN, so that whatever reads the block shows it.
//
// Products of int8 activations with quantised weights: one chain over the blocks of 32 in ascending
// order, from zero. x, dx and sum are the activation's q, d and sum in the block, the other names
// panel.h's; w is a weight's code less its zero point, or what the code stands for.
//   most types       acc = fma(s * dx, dot, acc), with dot = sum of w x, and s = d, d sc, 2^(e-128)
//     with minimum   acc = fma(m, sum, acc), with m as it is, or -(dmin mn)
//   Q2_K Q3_K Q6_K   acc = fma(d * dx, I, acc), with I = sc[0] dot[0] + sc[1] dot[1] over halves
//     Q2_K           acc = fma(-(dmin * dx), M, acc), with M = mn[0] sum x[0] + mn[1] sum x[1]
// dot, I and M are exact integers below 2^24; d sc and dmin mn are exact; what has a * rounds once.
//
// Sums over a row (RMS norm's squares, softmax's denominators) have one shape on every ISA: lane j
// of 8 adds up elements j, j + 8, j + 16 ... in ascending order, from zero; then, with l the lanes,
//   s[j] = l[j] + l[j + 4] for j < 4, and the sum is (s[0] + s[2]) + (s[1] + s[3]).
// The reference sums in float64 instead.
#ifndef TIDEPOOL_KERNELS_OPS_H_
#define TIDEPOOL_KERNELS_OPS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tidepool::kernels {

inline constexpr float kTinyBlock = 0x1p-119f;

// Whether weights of this type are blocks, which kFast multiplies in integers.
bool IsQuantised(DType dtype);

// Whether activations of `cols` columns have the int8 form under `precision`.
bool HasInt8Form(Precision precision, int64_t cols);

// An Activation under construction: the same memory, writable.
struct ActivationBuffer {
  MatrixView values;
  int8_t* quants = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;
  int16_t* half_sums = nullptr;

  Activation View() const { return {values, quants, scales, sums, half_sums}; }
};

// Which parts of an Activation are allocated: the int8 form alone (beside rows that exist), or all.
enum class ActivationParts : uint8_t { kInt8Only, kAll };

ActivationBuffer AllocateActivation(int64_t rows, int64_t cols, Precision precision,
                                    ActivationParts parts, Arena* arena);

// An upper bound of the arena bytes that one Activation takes, alignment included.
size_t ActivationBytes(int64_t rows, int64_t cols);

// An upper bound of the arena bytes that MatMulHead takes for `best` rows whose best is wanted.
size_t HeadBytes(int64_t best, int threads);

// Takes output `index` of a row into account. In ascending order of the index.
inline void AddToArgMax(int32_t index, float value, ArgMax* best) {
  if (!(value < __builtin_inff()) && best->unsound < 0) {
    best->unsound = index;
    best->unsound_value = value;
  }
  if (value > (best->index < 0 ? -__builtin_inff() : best->value)) {
    best->index = index;
    best->value = value;
  }
}

// Joins what two sets of outputs of one row gave.
void MergeArgMax(const ArgMax& other, ArgMax* best);

// An upper bound of the arena bytes that GroupedFfn takes for `rows` rows in all its `groups`.
size_t GroupedFfnBytes(int64_t rows, int64_t groups, int64_t width);

// An upper bound of the arena bytes that Attend takes for a batch of `rows` rows in `spans` spans,
// its result included. `threads` is the backend's.
size_t AttendBytes(int64_t rows, int64_t spans, int heads, const KvLayer& layer, int threads);

// KV slots [begin, end) that one query row sees. Never empty.
struct SlotRange {
  int64_t begin = 0;
  int64_t end = 0;
};
SlotRange VisibleSlots(const KvSpan& span, int64_t row);

// Each ends the process when the arguments of the op of that name contradict each other.
void CheckMatMul(const Activation& x, const PackedMatrix& weight, Precision precision);
void CheckTarget(const Activation& x, const MatMulTarget& target, Precision precision);
void CheckHead(const Activation& x, const HeadTarget& target, Precision precision);
void CheckStoreKv(ConstMatrixView k, ConstMatrixView v, const KvLayer& layer,
                  absl::Span<const KvSpan> spans);
void CheckAttend(const AttendCall& call);
void CheckRope(ConstMatrixView x, int head_dim, ConstMatrixView cos, ConstMatrixView sin);
void CheckGate(ConstMatrixView logits, const GateSpec& spec);
void CheckGroupedFfn(const Activation& x, absl::Span<const ExpertGroup> groups, ConstMatrixView out,
                     Precision precision);
void CheckExpertTerms(ConstMatrixView expert_out, const ExpertTerms& terms, ConstMatrixView sum);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_OPS_H_
