// libFuzzer target: any bytes as Last-Event-ID. The parser must not crash, and a valid id must be
// written back unchanged.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "service/http/stream_position.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tidepool::service::StreamPosition;
  if (size == 0) return 0;
  const size_t choices = 1 + data[0] % 8;
  const absl::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto position = StreamPosition::Parse(text, choices);
  if (!position.ok()) return 0;
  const auto again = StreamPosition::Parse(position->Id(), choices);
  CHECK(again.ok());
  CHECK_EQ(again->Id(), position->Id());
  return 0;
}
