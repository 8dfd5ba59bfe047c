#include "engine/checkpoint/pack_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/pack_header.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

template <typename T>
T Load(const std::byte* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof(T));
  return value;
}

absl::string_view TextAt(const std::byte* at, size_t bytes) {
  return absl::string_view(reinterpret_cast<const char*>(at), bytes);
}

// Reads buffer.size() bytes from the start of the file. Returns the number of bytes read, which is
// less if the file is shorter.
absl::StatusOr<size_t> ReadStart(int file, absl::Span<std::byte> buffer) {
  size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t got =
        pread(file, buffer.data() + done, buffer.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "reading its header");
    if (got == 0) break;
    done += got;
  }
  return done;
}

// Returns whether the checkpoint's time is unchanged. If an archive such as tar restored the
// checkpoint, its time may have lost the fraction of the second. So if `found_ns` is a whole number
// of seconds, only the seconds are compared.
bool SameTime(int64_t recorded_ns, int64_t found_ns) {
  constexpr int64_t kSecond = 1000000000;
  if (found_ns % kSecond == 0) return recorded_ns / kSecond == found_ns / kSecond;
  return recorded_ns == found_ns;
}

absl::string_view DigestOf(const PackPreamble& preamble) {
  return absl::string_view(preamble.digest, sizeof(preamble.digest));
}

absl::Status CheckDigest(const PackPreamble& preamble, const PackContents& contents) {
  if (DigestOf(preamble) == contents.digest) return absl::OkStatus();
  if (DigestOf(preamble) != contents.sampled_digest) {
    return absl::FailedPreconditionError("it belongs to another checkpoint");
  }
  if (SameTime(preamble.modified_ns, contents.modified_ns)) return absl::OkStatus();
  return absl::FailedPreconditionError("the checkpoint has changed since it was written");
}

// A file descriptor, which is closed by the destructor.
class OpenFile {
 public:
  OpenFile(const std::string& path, int flags) : file_(open(path.c_str(), flags | O_CLOEXEC)) {}
  ~OpenFile() {
    if (file_ >= 0) close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return file_; }

 private:
  const int file_;
};

absl::Status WriteStart(int file, absl::Span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put =
        pwrite(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return absl::ErrnoToStatus(errno, "writing its header");
    done += put;
  }
  if (fdatasync(file) != 0) return absl::ErrnoToStatus(errno, "writing its header");
  return absl::OkStatus();
}

}  // namespace

int64_t PackContents::header_bytes() const {
  int64_t experts = 0;
  for (const auto& layer : layouts) experts += static_cast<int64_t>(layer.size());
  const auto bytes = static_cast<int64_t>(sizeof(PackPreamble)) +
                     experts * static_cast<int64_t>(sizeof(PackEntry)) +
                     static_cast<int64_t>(sizeof(uint64_t));
  return (bytes + moe::kRecordAlignment - 1) / moe::kRecordAlignment * moe::kRecordAlignment;
}

int64_t PackContents::file_bytes() const {
  int64_t bytes = header_bytes();
  for (const auto& layer : layouts) {
    for (const moe::ExpertLayout& layout : layer) bytes += layout.bytes();
  }
  return bytes;
}

absl::StatusOr<moe::ExpertRecords> ParsePack(absl::Span<const std::byte> header, int64_t file_bytes,
                                             const PackContents& contents) {
  CHECK(!contents.layouts.empty() && contents.digest.size() == sizeof(PackPreamble::digest));
  if (header.size() < sizeof(PackPreamble)) return absl::DataLossError("it is truncated");
  const auto preamble = Load<PackPreamble>(header.data());
  if (TextAt(header.data(), sizeof(preamble.magic)) != kPackMagic) {
    return absl::DataLossError("it is not a pack file");
  }
  if (preamble.version != kPackVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("its format version is ", preamble.version, ", expected ", kPackVersion));
  }
  RETURN_IF_ERROR(CheckDigest(preamble, contents));
  const size_t layers = contents.layouts.size();
  const size_t experts = contents.layouts.front().size();
  if (preamble.layers != layers || preamble.experts != experts) {
    return absl::DataLossError(absl::StrCat("it has ", preamble.layers, " layers of ",
                                            preamble.experts, " experts, expected ", layers, " of ",
                                            experts));
  }
  const size_t table = sizeof(PackPreamble) + layers * experts * sizeof(PackEntry);
  if (header.size() < table + sizeof(uint64_t)) return absl::DataLossError("it is truncated");
  if (PackHash(header.first(table)) != Load<uint64_t>(header.data() + table)) {
    return absl::DataLossError("the checksum of its header does not match");
  }
  if (preamble.file_bytes != static_cast<uint64_t>(contents.file_bytes()) ||
      file_bytes != contents.file_bytes()) {
    return absl::DataLossError(
        absl::StrCat("it is ", file_bytes, " bytes long, expected ", contents.file_bytes()));
  }
  moe::ExpertRecords records;
  const std::byte* next = header.data() + sizeof(PackPreamble);
  int64_t offset = contents.header_bytes();
  for (const auto& layer : contents.layouts) {
    auto& row = records.layers.emplace_back();
    for (const moe::ExpertLayout& layout : layer) {
      const auto entry = Load<PackEntry>(next);
      next += sizeof(PackEntry);
      if (entry.bytes != static_cast<uint64_t>(layout.bytes())) {
        return absl::DataLossError(
            absl::StrCat("a record is ", entry.bytes, " bytes long, expected ", layout.bytes()));
      }
      row.push_back({layout, offset, entry.hash});
      offset += layout.bytes();
    }
  }
  return records;
}

absl::StatusOr<moe::ExpertRecords> ReadPack(const std::string& path, const PackContents& contents) {
  const OpenFile file(path, O_RDONLY);
  if (file.get() < 0) return absl::ErrnoToStatus(errno, "opening it");
  struct stat found;
  if (fstat(file.get(), &found) != 0) return absl::ErrnoToStatus(errno, "reading its status");
  std::vector<std::byte> header(contents.header_bytes());
  ASSIGN_OR_RETURN(const size_t got, ReadStart(file.get(), absl::MakeSpan(header)));
  ASSIGN_OR_RETURN(moe::ExpertRecords records,
                   ParsePack(absl::MakeConstSpan(header).first(got), found.st_size, contents));
  records.path = path;
  return records;
}

absl::Status RenewPackDigest(const std::string& path, const PackContents& contents) {
  std::vector<std::byte> header(contents.header_bytes());
  {
    const OpenFile file(path, O_RDONLY);
    if (file.get() < 0) return absl::ErrnoToStatus(errno, "opening it");
    ASSIGN_OR_RETURN(const size_t got, ReadStart(file.get(), absl::MakeSpan(header)));
    RETURN_IF_ERROR(
        ParsePack(absl::MakeConstSpan(header).first(got), contents.file_bytes(), contents)
            .status());
  }
  auto preamble = Load<PackPreamble>(header.data());
  if (DigestOf(preamble) == contents.digest) return absl::OkStatus();
  std::copy(contents.digest.begin(), contents.digest.end(), preamble.digest);
  std::memcpy(header.data(), &preamble, sizeof(preamble));
  const size_t table =
      sizeof(preamble) + size_t{preamble.layers} * preamble.experts * sizeof(PackEntry);
  const uint64_t hash = PackHash(absl::MakeConstSpan(header).first(table));
  std::memcpy(header.data() + table, &hash, sizeof(hash));
  const OpenFile file(path, O_WRONLY);
  if (file.get() < 0) return absl::ErrnoToStatus(errno, "opening it");
  return WriteStart(file.get(), header);
}

}  // namespace tidepool::engine
