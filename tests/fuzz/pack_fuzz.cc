// libFuzzer target: any bytes as the header of a pack file. They are used unchanged, and again with
// a valid checksum.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:pack_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/checkpoint/pack_file.h"
#include "kernels/base/check.h"
#include "xxhash.h"

namespace {

using namespace tidepool;  // NOLINT

constexpr size_t kLayers = 2;
constexpr size_t kExperts = 3;

engine::PackContents Contents() {
  using kernels::DType;
  engine::PackContents contents = {.digest = "0123456789abcdef0123456789abcdef"};
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const DType type = layer == 0 ? DType::kQ4_K : DType::kQ8_0;
    contents.layouts.emplace_back(
        kExperts, moe::ExpertLayout({{type, 256, 256}, {type, 256, 256}, {type, 256, 256}}));
  }
  return contents;
}

void Parse(const std::vector<std::byte>& bytes, const engine::PackContents& contents) {
  const auto records = engine::ParsePack(bytes, contents.file_bytes(), contents);
  if (!records.ok()) {
    CHECK(!records.status().message().empty());
    CHECK(!absl::StrContains(records.status().message(), "\n"));
    return;
  }
  CHECK_EQ(records->layers.size(), kLayers);
  int64_t end = contents.header_bytes();
  for (const auto& layer : records->layers) {
    CHECK_EQ(layer.size(), kExperts);
    for (const moe::ExpertRecord& record : layer) {
      CHECK_EQ(record.offset, end);
      end += record.layout.bytes();
    }
  }
  CHECK_EQ(end, contents.file_bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const engine::PackContents contents = Contents();
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  Parse(bytes, contents);
  constexpr size_t kTable = 72 + kLayers * kExperts * 16;
  if (size < kTable + sizeof(uint64_t)) return 0;
  const uint64_t hash = XXH3_64bits(bytes.data(), kTable);
  std::memcpy(bytes.data() + kTable, &hash, sizeof(hash));
  Parse(bytes, contents);
  return 0;
}
