#include "tests/engine/model/gguf_edit.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

// The bytes of a scalar value, as the file has them.
std::string ScalarBytes(const GgufEntry& entry) {
  size_t size = 0;
  switch (entry.type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      size = 1;
      break;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      size = 2;
      break;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      size = 4;
      break;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      size = 8;
      break;
    case GgufValueType::kString: {
      uint64_t length = 0;
      std::memcpy(&length, entry.data, sizeof(length));
      size = sizeof(length) + length;
      break;
    }
    case GgufValueType::kArray:
      CHECK(false) << "not a scalar";
  }
  return std::string(reinterpret_cast<const char*>(entry.data), size);
}

}  // namespace

GgufEdit::GgufEdit(const std::string& path) {
  const auto file = GgufFile::Open(path);
  CHECK_OK(file.status());
  for (const GgufEntry& entry : file->metadata()) {
    if (entry.is_array || absl::StartsWith(entry.key, "tokenizer.")) continue;
    metadata_.Value(std::string(entry.key), entry.type, ScalarBytes(entry));
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
