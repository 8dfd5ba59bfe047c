// libFuzzer target: any bytes after the header of a KV disk's file. They are used unchanged, and
// again with valid checksums, so that the entries are not dropped.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:kv_disk_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/kv/kv_disk.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"

namespace {

using namespace tidepool;  // NOLINT

constexpr int64_t kSlots = 3;
constexpr engine::KvDiskLayout kLayout = {.block_bytes = 100, .slots = kSlots};

class StringFile final : public engine::KvDiskFile {
 public:
  explicit StringFile(std::string content) : content_(std::move(content)) {}

  absl::StatusOr<std::string> ReadSmall(int64_t offset, int64_t bytes) override {
    if (offset >= static_cast<int64_t>(content_.size())) return "";
    return content_.substr(offset, bytes);
  }
  absl::Status WriteSmall(int64_t offset, absl::string_view bytes) override {
    if (content_.size() < offset + bytes.size()) content_.resize(offset + bytes.size());
    content_.replace(offset, bytes.size(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  absl::Status Read(int64_t offset, absl::Span<std::byte> into) override {
    const std::string bytes = *ReadSmall(offset, static_cast<int64_t>(into.size()));
    if (bytes.size() < into.size()) return absl::DataLossError("short");
    std::memcpy(into.data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  absl::Status Write(int64_t offset, absl::Span<const std::byte> bytes) override {
    return WriteSmall(offset, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  absl::Status Clear() override {
    content_.clear();
    return absl::OkStatus();
  }

 private:
  std::string content_;
};

// Checks that every listed block is read undamaged or is dropped, and that the disk continues to
// work.
void Use(const std::string& content) {
  auto opened = engine::KvDisk::Open(
      std::make_unique<StringFile>(content),
      {.limit_bytes = kLayout.file_bytes(), .block_bytes = kLayout.block_bytes, .identity = "m"},
      &base::Clock::Real());
  CHECK(opened.ok());
  engine::KvDisk& disk = **opened;
  CHECK_EQ(disk.slots(), kSlots);
  std::vector<engine::KvDiskEntry> entries;
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    if (content.size() < static_cast<size_t>(kLayout.entry_offset(slot + 1))) break;
    const auto entry = engine::ParseKvDiskEntry(
        absl::string_view(content).substr(kLayout.entry_offset(slot), engine::kKvDiskEntryBytes),
        slot);
    if (!entry.has_value()) continue;
    CHECK(disk.Knows(entry->key));
    entries.push_back(*entry);
  }
  for (const engine::KvDiskEntry& entry : entries) {
    disk.StartRead(entry.key, entry.tokens, /*ticket=*/0);
  }
  for (const engine::KvDiskEntry& entry : entries) disk.NoteUse({entry.key});
  const std::vector<std::byte> block(kLayout.block_bytes, std::byte{7});
  const std::vector<int32_t> tokens(kernels::kKvBlockTokens, 1);
  disk.Write({{1, 2}, 0}, tokens, block, {.patience = absl::Seconds(10)});
  CHECK(disk.Flush(absl::Seconds(10)));
  for (const engine::KvDisk::Read& read : disk.TakeReads()) {
    CHECK(!read.ok() || read.bytes().size() == static_cast<size_t>(kLayout.block_bytes));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string header = engine::EncodeKvDiskHeader(kLayout, "m");
  std::string content = header;
  if (size > 0) content.append(reinterpret_cast<const char*>(data), size);
  Use(content);
  // Gives valid checksums to the entries, and to the blocks that exist.
  std::string sound = header;
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    engine::KvDiskEntry entry;
    const size_t begin = slot * sizeof(entry.key.hash);
    if (size >= begin + sizeof(entry.key.hash)) {
      std::memcpy(&entry.key.hash, data + begin, sizeof(entry.key.hash));
    }
    entry.stamp = size > 48 ? data[48] >> slot : 0;
    entry.key.group = size > 49 ? data[49] >> (2 * slot) & 3 : 0;
    if (size > 50 && (data[50] >> slot & 1) != 0) {
      const std::vector<std::byte> zeros(kLayout.block_bytes);
      entry.checksum = engine::KvDiskChecksum(zeros);
    }
    sound += engine::EncodeKvDiskEntry(entry, slot);
  }
  sound.resize(size > 51 && data[51] % 2 == 0 ? kLayout.file_bytes() : sound.size());
  Use(sound);
  return 0;
}
