// Fills a GgufFile from its mapped parts. Implementation detail of GgufFile::Open.
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

// What one file of a checkpoint says, in file order.
struct GgufContents {
  int version = 0;
  uint64_t data_start = 0;
  std::vector<GgufEntry> entries;
  std::vector<GgufTensor> tensors;  // `part` is left 0
};

// Reads and checks one mapped file. Thread-safe; `path` is for messages.
absl::StatusOr<GgufContents> ParseGguf(const std::string& path, absl::Span<const std::byte> bytes);

// Bytes of a scalar of this type; 0 for strings and arrays.
size_t ScalarBytes(GgufValueType type);
// "u32", "string" and so on, for messages.
absl::string_view ValueTypeName(GgufValueType type);

// Reads a scalar of type T at `data`, which need not be aligned.
template <typename T>
T LoadScalar(const std::byte* data) {
  T value;
  __builtin_memcpy(&value, data, sizeof(T));
  return value;
}

// `text` with quotes around it, escaped to one printable line and cut to at most `limit` bytes.
std::string Quote(absl::string_view text, size_t limit = 80);

// INVALID_ARGUMENT "path: subject: message", with the subject (a key, a tensor) escaped to one
// line; an empty subject is left out.
absl::Status GgufError(absl::string_view path, absl::string_view subject,
                       absl::string_view message);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_GGUF_PARSER_H_
