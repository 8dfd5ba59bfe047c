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
  GgmlType type = GgmlType::kF32;  // F32, F16 or BF16; I8 (U8 too) or I64 if it is not a weight
  std::vector<int64_t> shape;      // slowest first; 1 to 5 dimensions, each at least 1
  uint64_t file_offset = 0;        // offset of the first byte
  uint64_t bytes = 0;
};

struct SafetensorsContents {
  uint64_t data_start = 0;
  std::vector<StoredTensor> tensors;  // sorted by name
};

// Thread-safe. Checks the whole header: sizes, overlaps, gaps, and that every tensor lies inside
// the file. Returns INVALID_ARGUMENT "PATH: TENSOR: ..." if a check fails, and UNIMPLEMENTED if a
// tensor type is not supported.
absl::StatusOr<SafetensorsContents> ParseSafetensors(const std::string& path,
                                                     absl::Span<const std::byte> bytes);

// Parses model.safetensors.index.json. Returns the file that holds each tensor. A file is a plain
// name in the same folder. An INVALID_ARGUMENT error names the file and the entry.
absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(const std::string& path,
                                                                         absl::string_view text);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_SAFETENSORS_H_
