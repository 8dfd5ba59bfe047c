// libFuzzer target: any bytes as a GGUF file, read in full where they parse.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:gguf_fuzz -- -max_len=4096 -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_parser.h"
#include "kernels/base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tidepool::engine::GgufContents;
  using tidepool::engine::GgufFile;
  const absl::StatusOr<GgufContents> contents = tidepool::engine::ParseGguf(
      "fuzz", absl::MakeConstSpan(reinterpret_cast<const std::byte*>(data), size));
  if (!contents.ok()) {
    CHECK(contents.status().message().find('\n') == absl::string_view::npos);
    return 0;
  }
  for (const auto& entry : contents->entries) CHECK(!GgufFile::FormatValue(entry).empty());
  for (const auto& tensor : contents->tensors) {
    unsigned sum = 0;
    for (size_t i = 0; i < tensor.bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);
    CHECK(sum <= 255 * tensor.bytes);
    CHECK_EQ(tensor.row_bytes() * tensor.rows(), tensor.bytes);
  }
  return 0;
}
