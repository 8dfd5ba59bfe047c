// Implements WritePack.
#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "engine/checkpoint/pack_file.h"
#include "engine/checkpoint/pack_header.h"
#include "kernels/base/atomic_file.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/mapped_memory.h"

namespace tidepool::engine {
namespace {

// Uses two buffers in turn. While the caller writes a record into one, a thread writes the other to
// the file.
class RecordStream {
 public:
  RecordStream(base::AtomicFile* file, moe::MappedMemory memory)
      : file_(file), memory_(std::move(memory)) {}
  ~RecordStream() {
    if (writing_.joinable()) writing_.join();
  }

  // Returns a zeroed buffer.
  std::byte* Next(int64_t bytes) {
    std::byte* buffer = memory_.data() + (odd_ ? memory_.size() / 2 : 0);
    odd_ = !odd_;
    std::memset(buffer, 0, static_cast<size_t>(bytes));
    return buffer;
  }

  // Writes the buffer that the last call of Next returned.
  absl::Status Write(const std::byte* buffer, int64_t bytes, int64_t offset) {
    RETURN_IF_ERROR(Wait());
    writing_ = std::thread(
        [this, buffer, bytes, offset] { written_ = file_->WriteAt(buffer, bytes, offset); });
    return absl::OkStatus();
  }

  absl::Status Wait() {
    if (writing_.joinable()) writing_.join();
    return written_;
  }

 private:
  base::AtomicFile* const file_;
  moe::MappedMemory memory_;
  bool odd_ = false;
  std::thread writing_;
  absl::Status written_;  // result of the thread; only read after the thread was joined
};

absl::Status WriteHeader(const PackContents& contents, const std::vector<PackEntry>& entries,
                         base::AtomicFile* file) {
  ASSIGN_OR_RETURN(const moe::MappedMemory header,
                   moe::MappedMemory::Create(contents.header_bytes()));
  PackPreamble preamble = {};
  std::copy(kPackMagic.begin(), kPackMagic.end(), preamble.magic);
  preamble.version = kPackVersion;
  preamble.layers = static_cast<uint32_t>(contents.layouts.size());
  preamble.experts = static_cast<uint32_t>(contents.layouts.front().size());
  CHECK(contents.digest.size() == sizeof(preamble.digest));
  std::copy(contents.digest.begin(), contents.digest.end(), preamble.digest);
  preamble.modified_ns = contents.modified_ns;
  preamble.file_bytes = static_cast<uint64_t>(contents.file_bytes());
  std::memcpy(header.data(), &preamble, sizeof(preamble));
  const size_t table = entries.size() * sizeof(PackEntry);
  std::memcpy(header.data() + sizeof(preamble), entries.data(), table);
  const uint64_t hash = PackHash(absl::MakeConstSpan(header.data(), sizeof(preamble) + table));
  std::memcpy(header.data() + sizeof(preamble) + table, &hash, sizeof(hash));
  return file->WriteAt(header.data(), header.size(), 0);
}

}  // namespace

absl::Status WritePack(const std::string& path, const PackContents& contents, FillRecord fill,
                       absl::FunctionRef<void(double fraction)> progress) {
  CHECK(!contents.layouts.empty() && !contents.layouts.front().empty());
  int64_t largest = 0;
  int64_t count = 0;
  for (const auto& layer : contents.layouts) {
    for (const moe::ExpertLayout& layout : layer) largest = std::max(largest, layout.bytes());
    count += static_cast<int64_t>(layer.size());
  }
  // Bypass the page cache, because its current contents are more useful than the pack.
  ASSIGN_OR_RETURN(const std::unique_ptr<base::AtomicFile> file,
                   base::AtomicFile::Create(path, {.existing = base::ExistingFile::kReplace,
                                                   .bytes = contents.file_bytes(),
                                                   .cache = base::PageCache::kBypass}));
  ASSIGN_OR_RETURN(moe::MappedMemory memory, moe::MappedMemory::Create(2 * largest));
  RecordStream stream(file.get(), std::move(memory));
  std::vector<PackEntry> entries;
  int64_t offset = contents.header_bytes();
  for (size_t layer = 0; layer < contents.layouts.size(); ++layer) {
    for (size_t expert = 0; expert < contents.layouts[layer].size(); ++expert) {
      const int64_t bytes = contents.layouts[layer][expert].bytes();
      std::byte* const record = stream.Next(bytes);
      RETURN_IF_ERROR(fill(static_cast<int>(layer), static_cast<int>(expert), record));
      entries.push_back({static_cast<uint64_t>(bytes), moe::RecordHash(record, bytes)});
      RETURN_IF_ERROR(stream.Write(record, bytes, offset));
      offset += bytes;
      progress(static_cast<double>(entries.size()) / static_cast<double>(count));
    }
  }
  RETURN_IF_ERROR(stream.Wait());
  RETURN_IF_ERROR(WriteHeader(contents, entries, file.get()));
  return file->Finish();
}

}  // namespace tidepool::engine
