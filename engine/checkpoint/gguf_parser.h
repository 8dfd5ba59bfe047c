// Parses the mapped parts of a GgufFile. Implementation detail of GgufFile::Open.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_GGUF_PARSER_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_GGUF_PARSER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/checkpoint/gguf.h"

namespace tidepool::engine {

// The contents of one file of a checkpoint, in file order.
struct GgufContents {
  int version = 0;
  uint64_t data_start = 0;
  std::vector<GgufEntry> entries;
  std::vector<GgufTensor> tensors;  // `part` is 0 in each tensor
};

// Parses and checks one mapped file. `path` is only used in error messages. Thread-safe.
absl::StatusOr<GgufContents> ParseGguf(const std::string& path, absl::Span<const std::byte> bytes);

// Size of a scalar of this type in bytes. 0 for strings and arrays.
size_t ScalarBytes(GgufValueType type);
// The type's name for error messages, for example "u32" or "string".
absl::string_view ValueTypeName(GgufValueType type);

// Reads a scalar of type T at `data`, which may be unaligned.
template <typename T>
T LoadScalar(const std::byte* data) {
  T value;
  __builtin_memcpy(&value, data, sizeof(T));
  return value;
}

// Returns `text` in quotes, with everything unprintable escaped, truncated to `limit` bytes.
std::string Quote(absl::string_view text, size_t limit = 80);

// Returns INVALID_ARGUMENT "path: subject: message". The subject (a key or a tensor's name) is
// escaped so that it stays on one line. It is omitted if empty.
absl::Status GgufError(absl::string_view path, absl::string_view subject,
                       absl::string_view message);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_GGUF_PARSER_H_
