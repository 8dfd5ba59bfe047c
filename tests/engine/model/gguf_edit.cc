#include "tests/engine/model/gguf_edit.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

// Returns the number of bytes of a scalar type.
size_t NumberBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  CHECK(false) << "not a number";
  return 0;
}

// Returns the bytes of a scalar value, or of the elements of an array of numbers, as they are in
// the file.
std::string ValueBytes(const GgufEntry& entry) {
  size_t size = 0;
  if (entry.type == GgufValueType::kString) {
    CHECK(!entry.is_array) << entry.key;
    uint64_t length = 0;
    std::memcpy(&length, entry.data, sizeof(length));
    size = sizeof(length) + length;
  } else {
    size = entry.count * NumberBytes(entry.type);
  }
  return std::string(reinterpret_cast<const char*>(entry.data), size);
}

}  // namespace

GgufEdit::GgufEdit(const std::string& path) {
  const auto file = GgufFile::Open(path);
  CHECK_OK(file.status());
  for (const GgufEntry& entry : file->metadata()) {
    if (absl::StartsWith(entry.key, "tokenizer.")) continue;
    const std::string key(entry.key);
    if (entry.is_array) {
      metadata_.Array(key, entry.type, entry.count, ValueBytes(entry));
    } else {
      metadata_.Value(key, entry.type, ValueBytes(entry));
    }
  }
  for (const GgufTensor& tensor : file->tensors()) {
    tensors_.push_back(
        {std::string(tensor.name), tensor.type,
         std::vector<uint64_t>(tensor.dims.begin(), tensor.dims.begin() + tensor.dim_count),
         std::string(reinterpret_cast<const char*>(tensor.data), tensor.bytes)});
  }
}

EditableTensor& GgufEdit::at(const std::string& name) {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const EditableTensor& t) { return t.name == name; });
  CHECK(found != tensors_.end()) << "no tensor " << name;
  return *found;
}

EditableTensor GgufEdit::Take(const std::string& name) {
  EditableTensor& found = at(name);
  EditableTensor taken = std::move(found);
  tensors_.erase(tensors_.begin() + (&found - tensors_.data()));
  return taken;
}

std::string GgufEdit::Write(const std::string& name) const {
  GgufWriter writer = metadata_;
  for (const EditableTensor& tensor : tensors_) {
    writer.Tensor(tensor.name, tensor.type, tensor.dims, tensor.data);
  }
  return WriteTempFile(name, writer.Build());
}

}  // namespace tidepool::engine
