// Parses the header of a safetensors file. The file holds an 8-byte little-endian header size, the
// header as JSON, and the data.
// Format: https://github.com/huggingface/safetensors.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_SAFETENSORS_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/checkpoint/ggml_type.h"

namespace tidepool::engine::hf {

struct StoredTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;  // F32, F16 or BF16 for weights; else I8 (also for U8) or I64
  std::vector<int64_t> shape;      // slowest dimension first; 1 to 5 dimensions, each at least 1
  uint64_t file_offset = 0;        // offset of the first byte
  uint64_t bytes = 0;
};

struct SafetensorsContents {
  uint64_t data_start = 0;
  std::vector<StoredTensor> tensors;  // sorted by name
};

// Parses a header and checks all of it: sizes, overlaps, gaps, and that every tensor is inside the
// file. Returns INVALID_ARGUMENT "PATH: TENSOR: ..." if a check fails, and UNIMPLEMENTED if a
// tensor type is not supported. Thread-safe.
absl::StatusOr<SafetensorsContents> ParseSafetensors(const std::string& path,
                                                     absl::Span<const std::byte> bytes);

// Parses model.safetensors.index.json. Returns the name of the file that contains each tensor, by
// the tensor's name. The files are in the same folder. Returns INVALID_ARGUMENT with the file and
// the entry if the index is invalid.
absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(const std::string& path,
                                                                         absl::string_view text);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_SAFETENSORS_H_
