// Tensors of a Hugging Face checkpoint under the names that GGUF has for them.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSORS_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/hf/families.h"
#include "engine/checkpoint/hf/safetensors.h"

namespace tidepool::engine::hf {

// A tensor of one of the files. Views point into that file.
struct TensorSource {
  const StoredTensor* tensor = nullptr;
  absl::string_view path;
  int part = 0;
  const std::byte* data = nullptr;
};

struct TensorSet {
  std::vector<GgufTensor> tensors;  // in the order of their names; views into `owned`
  std::vector<std::unique_ptr<std::byte[]>> owned;
};

// Renames all tensors. Experts of a layer become slabs of one tensor, q and k of families with
// rotary pairs get their rows in turns, vectors become float32. INVALID_ARGUMENT names file and
// tensor: one that the model does not have, one that is missing, experts of different shapes.
absl::StatusOr<TensorSet> NameTensors(const std::string& path, const HfModel& model,
                                      const std::vector<TensorSource>& sources);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSORS_H_
