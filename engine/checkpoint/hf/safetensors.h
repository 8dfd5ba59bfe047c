// The header of a safetensors file: an 8-byte little-endian size, so many bytes of JSON, then data.
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
  GgmlType type = GgmlType::kF32;  // F32, F16 or BF16
  std::vector<int64_t> shape;      // slowest first; 1 to 3 sizes of at least 1
  uint64_t file_offset = 0;        // of the first byte
  uint64_t bytes = 0;
};

struct SafetensorsContents {
  uint64_t data_start = 0;
  std::vector<StoredTensor> tensors;  // in the order of their names
};

// Checks the whole header: sizes, overlaps, gaps, and that every tensor lies inside the file.
// INVALID_ARGUMENT "PATH: TENSOR: ..."; UNIMPLEMENTED: a type that is not read. Thread-safe.
absl::StatusOr<SafetensorsContents> ParseSafetensors(const std::string& path,
                                                     absl::Span<const std::byte> bytes);

// Which file holds each tensor, from model.safetensors.index.json: plain names of files in the same
// folder. INVALID_ARGUMENT names the file and the entry.
absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(const std::string& path,
                                                                         absl::string_view text);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_SAFETENSORS_H_
