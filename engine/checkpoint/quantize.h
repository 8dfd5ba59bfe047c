// Quantisation of float32 to GGUF blocks: the inverse of dequantize.h, with the error kept small.
//
// Every block's scale (and minimum) is searched: codes are rounded at each of a few candidate
// scales around the one that spans the block, a least-squares fit to those codes gives the scale
// that suits them best, and the candidate with the least squared error wins; rounding and fitting
// then alternate until the codes stand. Codes are rounded again for the scale as it is stored. All
// elements weigh the same: without statistics of the activations no column is known to matter more.
// Q8_0 alone spans its block: at eight bits a search gains nothing worth its time.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_H_

#include <cstddef>

#include "absl/types/span.h"
#include "engine/checkpoint/ggml_type.h"

namespace tidepool::engine {

// F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, IQ4_NL and MXFP4.
bool CanQuantize(GgmlType type);

// The largest magnitude that blocks of `type` hold: 65504 where a scale or an element is a float16.
float LargestQuantizable(GgmlType type);

// Writes in.size() elements as blocks of `type` at `out`, which need not be aligned. The same input
// gives the same bytes on every machine. Thread-safe. Requires: CanQuantize(type), in.size() a
// multiple of the type's block, magnitudes of at most LargestQuantizable(type) and no NaN.
void Quantize(GgmlType type, absl::Span<const float> in, std::byte* out);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_H_
