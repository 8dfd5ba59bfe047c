// Dequantises GGUF blocks to float32 exactly. It computes the formulas of the format's reference
// implementation, and rounds each product and sum to float32 in the same order. So the result has
// the same bits.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_DEQUANTIZE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_DEQUANTIZE_H_

#include <cstddef>

#include "absl/types/span.h"
#include "engine/checkpoint/ggml_type.h"

namespace tidepool::engine {

// Returns false for types of activations (Q8_1 and Q8_K) and for unsupported types (IQ1_*, IQ2_*,
// IQ3_*, TQ*_0, Q1_0, Q2_0).
bool CanDequantize(GgmlType type);

// Converts out.size() elements of `type` at `source` to float32. `source` may be unaligned.
// Elements of wider types (F64, I32, I64) are rounded to nearest. Thread-safe. Requires:
// CanDequantize(type), and out.size() is a multiple of the type's block size.
void Dequantize(GgmlType type, const std::byte* source, absl::Span<float> out);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_DEQUANTIZE_H_
