// The functions of families.h. families.cc has the table.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/hf/families.h"

namespace tidepool::engine::hf {

const HfFamily* FindHfFamily(absl::string_view model_type) {
  for (const HfFamily& family : HfFamilies()) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::vector<int64_t> HfModel::ValueHeads() const {
  const int64_t of_each = delta.v_heads / delta.k_heads;
  std::vector<int64_t> order(delta.v_heads);
  for (int64_t i = 0; i < delta.v_heads; ++i) {
    order[i] = parts.Has(Part::kDeltaNet) ? i % delta.k_heads * of_each + i / delta.k_heads : i;
  }
  return order;
}

std::string KnownHfFamilies() {
  std::string names;
  for (const HfFamily& family : HfFamilies()) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", family.model_type);
  }
  return names;
}

}  // namespace tidepool::engine::hf
