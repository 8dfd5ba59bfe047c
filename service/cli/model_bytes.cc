#include "service/cli/model_bytes.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "kernels/packed_matrix.h"

namespace tidepool::service {

bool IsExpertTensor(absl::string_view name) {
  if (absl::StrContains(name, "_exps.")) return true;
  for (absl::string_view part : {"ffn_gate.", "ffn_up.", "ffn_down."}) {
    const size_t at = name.find(part);
    if (at != absl::string_view::npos && at + part.size() < name.size() &&
        absl::ascii_isdigit(name[at + part.size()])) {
      return true;
    }
  }
  return false;
}

int64_t ResidentBytes(const engine::GgufTensor& tensor) {
  return ResidentBytes(tensor, tensor.type);
}

int64_t ResidentBytes(const engine::GgufTensor& tensor, engine::GgmlType type) {
  if (tensor.dim_count < 2) return tensor.elements() * int64_t{sizeof(float)};
  const kernels::DType dtype = engine::NativeDType(type).value_or(kernels::DType::kF32);
  return static_cast<int64_t>(kernels::PackedBytes(dtype, tensor.dims[1], tensor.dims[0])) *
         tensor.dims[2] * tensor.dims[3];
}

}  // namespace tidepool::service
