// libFuzzer target: any bytes as the record of a checkpoint's digest. From a valid record, its
// digest is read, whatever its value is. From other bytes, nothing is read.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:digest_record_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/checkpoint/content_digest.h"
#include "engine/checkpoint/gguf.h"
#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_file.h"

namespace {

using namespace tidepool;  // NOLINT

// A GGUF file of version 3 with one tensor of one number, and no metadata.
constexpr char kModel[] =
    "GGUF\3\0\0\0"
    "\1\0\0\0\0\0\0\0"
    "\0\0\0\0\0\0\0\0"
    "\1\0\0\0\0\0\0\0t"
    "\1\0\0\0"
    "\1\0\0\0\0\0\0\0"
    "\0\0\0\0"
    "\0\0\0\0\0\0\0\0"
    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

const engine::GgufFile& Model() {
  static const fuzz::FuzzFile bytes(kModel, sizeof(kModel));
  static const absl::StatusOr<engine::GgufFile> file = engine::GgufFile::Open(bytes.path());
  CHECK_OK(file.status());
  return *file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::optional<std::string> digest = engine::ParseDigestRecord(Model(), text);
  if (digest.has_value()) CHECK(text == engine::FormatDigestRecord(Model(), *digest));
  // A digest that the fuzzer chooses.
  std::string own(32, '0');
  for (size_t i = 0; i < own.size() && i < size; ++i) own[i] = "0123456789abcdef"[data[i] % 16];
  std::string record = engine::FormatDigestRecord(Model(), own);
  CHECK(engine::ParseDigestRecord(Model(), record) == own);
  if (size < 3) return 0;
  const size_t at = (size_t{data[0]} | size_t{data[1]} << 8) % record.size();
  if (data[2] == 0) return 0;
  record[at] = static_cast<char>(record[at] ^ data[2]);
  CHECK(!engine::ParseDigestRecord(Model(), record).has_value());
  return 0;
}
