// Dequantises GGUF blocks to float32 exactly. The formulas are those of the format's reference,
// with each product and sum rounded to float32 in the same order, so every bit agrees.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_DEQUANTIZE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_DEQUANTIZE_H_

#include <cstddef>

#include "absl/types/span.h"
#include "engine/checkpoint/ggml_type.h"

namespace tidepool::engine {

// False for types that hold activations instead of weights (Q8_1 and Q8_K), and for unsupported
// ones (IQ1_*, IQ2_*, IQ3_*, TQ*_0, Q1_0, Q2_0).
bool CanDequantize(GgmlType type);

// Converts out.size() elements of `type` at `source` to float32. `source` need not be aligned.
// Wider types (F64, I32, I64) round to nearest. Thread-safe. Requires: CanDequantize(type), and
// out.size() is a multiple of the type's block.
void Dequantize(GgmlType type, const std::byte* source, absl::Span<float> out);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_DEQUANTIZE_H_
