// Quantises float32 to GGUF blocks with a small error. The inverse of dequantize.h.
//
// Every block's scale (and minimum) is searched. For each of a few candidate scales, codes are
// rounded, and a least-squares fit computes the best scale for these codes. The candidate with the
// least squared error wins. Then rounding and fitting alternate until the codes are stable. At the
// end, codes are rounded for the scale as it is stored. All elements have equal weight, because no
// statistics of activations are available. Q8_0 has no search: with eight bits it would gain almost
// nothing.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_H_

#include <cstddef>

#include "absl/types/span.h"
#include "engine/checkpoint/ggml_type.h"

namespace tidepool::engine {

// True for F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, IQ4_NL and MXFP4.
bool CanQuantize(GgmlType type);

// The largest magnitude that blocks of `type` can represent: 65504 if a scale or an element is a
// float16.
float LargestQuantizable(GgmlType type);

// Writes in.size() elements as blocks of `type` to `out`, which need not be aligned. The same input
// gives the same bytes on every machine. Thread-safe. Requires: CanQuantize(type), in.size() is a
// multiple of the type's block, magnitudes are at most LargestQuantizable(type), and there is no
// NaN.
void Quantize(GgmlType type, absl::Span<const float> in, std::byte* out);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_H_
