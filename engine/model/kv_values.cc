#include "engine/model/kv_values.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tidepool::engine {
namespace {

using kernels::DType;

// Returns the largest magnitude that the type can represent.
float Largest(DType dtype) {
  constexpr float kHalf = 65504;
  switch (dtype) {
    case DType::kF16:
      return kHalf;
    case DType::kBF16:
      return std::bit_cast<float>(uint32_t{0x7f7f0000});
    case DType::kQ8_0:
      return kHalf * 127;
    default:
      return std::numeric_limits<float>::max();
  }
}

absl::Status Error(int layer, absl::string_view what, DType dtype, float value) {
  const std::string place = absl::StrCat("the model's layer ", layer, " computed a ", what);
  if (std::isnan(value) || std::isinf(value)) {
    return absl::InternalError(absl::StrCat(place, " that is ",
                                            std::isnan(value) ? "NaN" : "infinite",
                                            ": its weights or arithmetic are broken"));
  }
  return absl::InternalError(absl::StrCat(
      place, " of ", value, ", which exceeds the maximum of KV type ", kernels::DTypeName(dtype),
      " (", Largest(dtype), "); use --kv-type bf16 or f32"));
}

}  // namespace

float KvLimit(DType dtype) {
  // the smallest number that becomes infinite as float16, whose largest number is 65,504
  constexpr float kHalf = 65520;
  switch (dtype) {
    case DType::kF16:
      return kHalf;
    case DType::kBF16:
      return std::bit_cast<float>(uint32_t{0x7f7f8000});
    case DType::kQ8_0:
      return kHalf * 127;  // the scales of kQ8_0 are float16
    default:
      return std::numeric_limits<float>::infinity();
  }
}

absl::Status CheckKvValues(int layer, absl::string_view what, DType dtype,
                           absl::Span<const kernels::RowScan> rows) {
  for (const kernels::RowScan& row : rows) {
    if (row.first_large >= 0) return Error(layer, what, dtype, row.large);
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine
