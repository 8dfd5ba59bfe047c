// The element types of GGUF files: ids, names and block sizes. A row of a quantised tensor is a
// sequence of blocks. All blocks of a type have the same number of elements and of bytes. The ids
// and sizes are those of the GGUF specification.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_GGML_TYPE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_GGML_TYPE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

struct GgmlTypeInfo {
  GgmlType type;
  absl::string_view name;  // the usual spelling, for example "Q4_K"
  int block_elements;
  int block_bytes;
};

// Returns the type that has this id in a file, or null if the id is unknown or its type was removed
// from the format.
const GgmlTypeInfo* FindGgmlType(uint32_t id);
// Describes an id for which FindGgmlType returns null: "Q4_2, which was removed from the format" or
// "unknown type 77".
std::string DescribeBadGgmlType(uint32_t id);

// Requires: `type` is one of the enumerators.
const GgmlTypeInfo& TypeInfo(GgmlType type);
inline absl::string_view GgmlTypeName(GgmlType type) { return TypeInfo(type).name; }

// Returns the kernels' type with the same block format. Returns nullopt if kernels cannot compute
// with such blocks. Tensors of this type must then be dequantised.
std::optional<kernels::DType> NativeDType(GgmlType type);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_GGML_TYPE_H_
