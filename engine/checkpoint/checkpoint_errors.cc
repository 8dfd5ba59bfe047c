// The errors of Checkpoint. They name tensors and keys as the user's files do.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/gguf_parser.h"

namespace tidepool::engine {

std::string GgufShape(absl::Span<const int64_t> dims) {
  return absl::StrCat("{", absl::StrJoin(dims, ", "), "}");
}

std::string GgufTensor::ShapeString() const {
  return GgufShape(absl::MakeConstSpan(dims.data(), std::max(dim_count, 1)));
}

FilePlace Checkpoint::PlaceOf(absl::string_view subject) const {
  if (const FilePlace* key = names_.FindKey(subject); key != nullptr) return *key;
  const TensorOrigin* origin = names_.FindTensor(subject);
  if (origin == nullptr) return {path(), std::string(subject)};
  return {origin->path, absl::StrReplaceAll(origin->name, {{"#", "0"}})};
}

absl::Status Checkpoint::Error(absl::string_view subject, absl::string_view message) const {
  const FilePlace place = PlaceOf(subject);
  return GgufError(place.path, place.name, message);
}

absl::Status Checkpoint::ShapeError(const GgufTensor& tensor,
                                    absl::Span<const int64_t> expected) const {
  const TensorOrigin* origin = names_.FindTensor(tensor.name);
  if (origin != nullptr) {
    return Error(tensor.name, absl::StrCat("shape ", StoredShape(*origin), ", expected ",
                                           StoredShapeFor(*origin, expected)));
  }
  return Error(tensor.name,
               absl::StrCat("shape ", tensor.ShapeString(), ", expected ", GgufShape(expected)));
}

absl::Status Checkpoint::RowError(const GgufTensor& tensor, int64_t row,
                                  absl::string_view message) const {
  const TensorOrigin* origin = names_.FindTensor(tensor.name);
  if (origin == nullptr) return Error(tensor.name, absl::StrCat("row ", row, " ", message));
  FilePlace place = PlaceOf(tensor.name);
  // The rows of a converted copy or of a transposed tensor are not the rows of the stored tensor.
  const MappedFile* part = tensor.transposed() ? nullptr : FindPart(tensor.row(row));
  if (part == nullptr) return GgufError(place.path, place.name, message);
  const std::byte* first = origin->data;
  if (first == nullptr) {
    const int64_t slab = row / tensor.dims[1];
    first = tensor.slabs[slab];
    place.name = absl::StrReplaceAll(origin->name, {{"#", absl::StrCat(slab)}});
  }
  const auto offset = static_cast<size_t>(tensor.row(row) - first);
  return GgufError(part->path, place.name,
                   absl::StrCat("row ", offset / tensor.row_bytes(), " ", message));
}

}  // namespace tidepool::engine
