#include "engine/checkpoint/file_names.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tidepool::engine {

std::string StoredShape(const TensorOrigin& origin) {
  std::vector<int64_t> sizes;
  for (const TensorOrigin::Size& size : origin.sizes) {
    if (size.stored != 0) sizes.push_back(size.stored);
  }
  return absl::StrCat("[", absl::StrJoin(sizes, ", "), "]");
}

std::string StoredShapeFor(const TensorOrigin& origin, absl::Span<const int64_t> dims) {
  std::vector<int64_t> sizes;
  for (const TensorOrigin::Size& size : origin.sizes) {
    int64_t needed = size.stored;
    if (size.dim != TensorOrigin::kFixed) {
      const int64_t dim = size.dim < static_cast<int>(dims.size()) ? dims[size.dim] : 1;
      needed = dim * size.times / size.per;
    }
    // Omit a leading size of 1, unless the stored tensor also has a 1 there.
    if (sizes.empty() && needed == 1 && size.stored != 1) continue;
    sizes.push_back(needed);
  }
  return absl::StrCat("[", absl::StrJoin(sizes, ", "), "]");
}

const FilePlace* FileNames::FindKey(absl::string_view key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &found->second;
}

const TensorOrigin* FileNames::FindTensor(absl::string_view tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace tidepool::engine
