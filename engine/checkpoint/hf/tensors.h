// Maps the tensors of a Hugging Face checkpoint to their GGUF names.
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
#include "engine/checkpoint/file_names.h"
#include "engine/checkpoint/hf/families.h"
#include "engine/checkpoint/hf/safetensors.h"

namespace tidepool::engine::hf {

// A tensor in one of the files. `data` points into that file.
struct TensorSource {
  const StoredTensor* tensor = nullptr;
  absl::string_view path;
  int part = 0;
  const std::byte* data = nullptr;
};

struct TensorSet {
  std::vector<GgufTensor> tensors;  // sorted by name; may point into `owned`
  // The stored tensors from which the tensors are made, by the tensors' names.
  std::map<std::string, TensorOrigin> origins;
  std::vector<std::unique_ptr<std::byte[]>> owned;
  // Number of draft layers, "mtp.layers.N.*". They are the layers after the last one.
  int64_t draft_layers = 0;
};

// Makes the GGUF tensors by the rules of tensor_rules.h. The experts of a layer become slabs of one
// tensor. Vectors become float32. Returns INVALID_ARGUMENT, with the file and the tensor, if a
// tensor is unknown, missing, or of a wrong shape. Also returns it if experts of a layer differ in
// shape or type. Returns UNIMPLEMENTED if a type is not supported.
absl::StatusOr<TensorSet> NameTensors(const std::string& path, const HfModel& model,
                                      const std::vector<TensorSource>& sources);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSORS_H_
