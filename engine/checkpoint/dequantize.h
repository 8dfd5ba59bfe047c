// Exact dequantisation of GGUF blocks to float32: the formulas of the format's reference, with each
// product and sum rounded to float32 in its order, so that every bit agrees with it.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_DEQUANTIZE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_DEQUANTIZE_H_

#include <cstddef>

#include "absl/types/span.h"
#include "engine/checkpoint/ggml_type.h"

namespace tidepool::engine {

// False for types that no weight is stored in (Q8_1 and Q8_K, which hold activations) and for those
// not yet supported (IQ1_*, IQ2_*, IQ3_*, TQ*_0, Q1_0, Q2_0).
bool CanDequantize(GgmlType type);

// Elements out.size() of `type` at `source`, which need not be aligned, as float32. Wider types
// (F64, I32, I64) round to nearest. Thread-safe. Requires: CanDequantize(type), out.size() a
// multiple of the type's block.
void Dequantize(GgmlType type, const std::byte* source, absl::Span<float> out);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_DEQUANTIZE_H_
