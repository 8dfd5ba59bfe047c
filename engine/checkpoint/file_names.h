// FileNames: how the user's files name the tensors and keys of a Checkpoint. A Checkpoint has
// GGUF's names and shapes for every format. Its error messages use the names and shapes of the
// files.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_FILE_NAMES_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_FILE_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::engine {

// What an error message names: a key or a tensor of a file.
struct FilePlace {
  std::string path;
  std::string name;
};

// The stored tensor from which a tensor of the checkpoint is made.
struct TensorOrigin {
  // One size of the stored tensor. If the checkpoint's tensor has the dimensions `dims`, the size
  // is dims[dim] * times / per.
  struct Size {
    int64_t stored = 0;  // 0 if the stored tensor does not have this dimension
    int dim = kFixed;
    int64_t times = 1;
    int64_t per = 1;
  };
  static constexpr int kFixed = -1;  // a size that does not depend on `dims`

  std::string path;
  std::string name;         // if each slab is a stored tensor, "#" represents the slab's number
  std::vector<Size> sizes;  // slowest dimension first
  // The first byte of the stored tensor in its file. Null if each slab is a stored tensor.
  const std::byte* data = nullptr;
};

// Formats the stored tensor's sizes, for example "[2, 60, 12]".
std::string StoredShape(const TensorOrigin& origin);
// Formats the sizes that the stored tensor needs so that the checkpoint's tensor has the dimensions
// `dims`. Dimensions that `dims` does not contain are 1.
std::string StoredShapeFor(const TensorOrigin& origin, absl::Span<const int64_t> dims);

// Thread-compatible.
class FileNames {
 public:
  void AddKey(absl::string_view key, FilePlace place) { keys_[key] = std::move(place); }
  void AddTensor(absl::string_view tensor, TensorOrigin origin) {
    tensors_[tensor] = std::move(origin);
  }

  // Return null if the files use the checkpoint's name.
  const FilePlace* FindKey(absl::string_view key) const;
  const TensorOrigin* FindTensor(absl::string_view tensor) const;

 private:
  absl::flat_hash_map<std::string, FilePlace> keys_;
  absl::flat_hash_map<std::string, TensorOrigin> tensors_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_FILE_NAMES_H_
