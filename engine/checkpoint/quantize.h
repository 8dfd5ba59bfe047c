// Quantises float32 to GGUF blocks with a small error. The inverse of dequantize.h.
//
// Searches for the best scale (and minimum) of each block. For each of a few candidate scales, it
// rounds the elements to codes, and a least-squares fit computes the best scale for these codes. It
// chooses the candidate with the least squared error. Then rounding and fitting alternate until the
// codes are stable. At the end, it rounds the codes again for the scale in its stored precision.
// All elements have equal weight, because no statistics of activations are available. Q8_0 has no
// search, because with eight bits a search would gain almost nothing.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_H_

#include <cstddef>

#include "absl/types/span.h"
#include "engine/checkpoint/ggml_type.h"

namespace tidepool::engine {

// Returns true for F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, IQ4_NL and
// MXFP4.
bool CanQuantize(GgmlType type);

// The largest magnitude that a block of `type` can represent. It is 65504 if a scale or an element
// is a float16.
float LargestQuantizable(GgmlType type);

// Writes in.size() elements as blocks of `type` to `out`, which may be unaligned. The same input
// gives the same bytes on every machine. Thread-safe. Requires: CanQuantize(type), in.size() is a
// multiple of the type's block size, magnitudes are at most LargestQuantizable(type), and there is
// no NaN.
void Quantize(GgmlType type, absl::Span<const float> in, std::byte* out);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_H_
