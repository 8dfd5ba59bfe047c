#include "engine/checkpoint/content_digest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "kernels/base/atomic_file.h"
#include "kernels/base/atomic_min.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_pool.h"
#include "xxhash.h"

namespace tidepool::engine {
namespace {

// The number of bytes that one thread hashes at a time. It is part of the definition of the digest.
constexpr size_t kChunkBytes = 4 << 20;
// Number of chunks per thread between two calls of the progress callback.
constexpr int64_t kChunksPerThread = 16;
constexpr size_t kDigits = 32;
constexpr absl::string_view kVersionLine = "tidepool content digest 1\n";
constexpr absl::string_view kDigestKey = "digest ";
// Large enough for a record of the maximum number of parts.
constexpr size_t kMaxRecordBytes = 1 << 20;

struct Chunk {
  int part = 0;
  absl::Span<const std::byte> bytes;
};

std::vector<Chunk> ChunksOf(const std::vector<GgufPart>& parts) {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < parts.size(); ++i) {
    const absl::Span<const std::byte> all = parts[i].bytes;
    for (size_t at = 0; at < all.size(); at += kChunkBytes) {
      chunks.push_back({static_cast<int>(i), all.subspan(at, kChunkBytes)});
    }
  }
  return chunks;
}

std::string Hex(const XXH128_hash_t& hash) {
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

bool IsDigest(absl::string_view text) {
  return text.size() == kDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

// Returns the hash of the hashes of all chunks.
std::string Combine(const std::vector<GgufPart>& parts, const std::vector<Chunk>& chunks,
                    const std::vector<XXH128_hash_t>& hashes) {
  std::string text(kVersionLine);
  absl::StrAppend(&text, parts.size(), "\n");
  int part = -1;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].part != part) {
      part = chunks[i].part;
      absl::StrAppend(&text, parts[part].bytes.size(), "\n");
    }
    absl::StrAppend(&text, Hex(hashes[i]));
  }
  return Hex(XXH3_128bits(text.data(), text.size()));
}

absl::StatusOr<std::string> HashAll(const Checkpoint& file, const ContentDigestOptions& options) {
  const std::vector<GgufPart> parts = file.parts();
  const std::vector<Chunk> chunks = ChunksOf(parts);
  const auto count = static_cast<int64_t>(chunks.size());
  std::vector<XXH128_hash_t> hashes(chunks.size());
  std::atomic<int64_t> unreadable{count};
  base::ThreadPool pool(static_cast<int>(std::min<int64_t>(options.threads, count)));
  const int64_t step = pool.threads() * kChunksPerThread;
  for (int64_t first = 0; first < count && unreadable == count; first += step) {
    const int64_t some = std::min(step, count - first);
    pool.ParallelFor(some, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = first + begin; i < first + end; ++i) {
        const Chunk& chunk = chunks[i];
        if (!file.MapIn(chunk.bytes.data(), chunk.bytes.size()).ok()) {
          return base::LowerTo(&unreadable, i);
        }
        hashes[i] = XXH3_128bits(chunk.bytes.data(), chunk.bytes.size());
        file.DropPages(chunk.bytes.data(), chunk.bytes.size());
      }
    });
    if (options.progress) {
      options.progress(static_cast<double>(first + some) / static_cast<double>(count));
    }
  }
  if (unreadable < count) {
    const Chunk& chunk = chunks[unreadable];
    RETURN_IF_ERROR(file.MapIn(chunk.bytes.data(), chunk.bytes.size()));
    return absl::UnavailableError(
        absl::StrCat(parts[chunk.part].path, ": was temporarily unreadable; start again"));
  }
  return Combine(parts, chunks, hashes);
}

std::string Identity(const FileIdentity& identity) {
  return absl::StrCat(identity.size, " ", identity.inode, " ", identity.modified_ns, " ",
                      identity.changed_ns);
}

// Returns the text of the record, or an empty string if there is no record.
std::string ReadRecord(const std::string& path) {
  std::string text;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return text;
  text.resize(kMaxRecordBytes);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = read(file, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += got;
  }
  close(file);
  text.resize(done);
  return text;
}

absl::Status WriteRecord(const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<base::AtomicFile> file,
      base::AtomicFile::Create(path, {.existing = base::ExistingFile::kReplace, .mode = 0644}));
  RETURN_IF_ERROR(file->Append(text.data(), static_cast<int64_t>(text.size())));
  return file->Finish();
}

// Returns whether the files still have the same names and contents as when they were opened.
bool IsUnchanged(const Checkpoint& file) {
  for (const GgufPart& part : file.parts()) {
    struct stat info;
    if (stat(std::string(part.path).c_str(), &info) != 0) return false;
    if (IdentityOf(info) != part.identity) return false;
  }
  return true;
}

// Directories in which the record may be, in the order of preference. "" is the directory of the
// checkpoint.
std::vector<std::string> Folders(const ContentDigestOptions& options) {
  std::vector<std::string> folders = {""};
  if (!options.cache_dir.empty()) folders.push_back(options.cache_dir);
  return folders;
}

absl::Status Record(const Checkpoint& file, absl::string_view hex,
                    const ContentDigestOptions& options) {
  if (!IsUnchanged(file)) {
    return absl::AbortedError(absl::StrCat(file.path(), " was modified while it was being read"));
  }
  const std::string text = FormatDigestRecord(file, hex);
  absl::Status first;
  for (const std::string& folder : Folders(options)) {
    const absl::Status written = WriteRecord(DigestRecordPath(file, folder), text);
    if (written.ok()) return written;
    first.Update(written);
  }
  return first;
}

std::optional<std::string> FindRecord(const Checkpoint& file, const ContentDigestOptions& options) {
  for (const std::string& folder : Folders(options)) {
    std::optional<std::string> hex =
        ParseDigestRecord(file, ReadRecord(DigestRecordPath(file, folder)));
    if (hex.has_value()) return hex;
  }
  return std::nullopt;
}

}  // namespace

std::string DigestRecordPath(const Checkpoint& file, absl::string_view cache_dir) {
  constexpr absl::string_view kSuffix = ".tidedigest";
  if (cache_dir.empty()) return file.SidecarPath(kSuffix);
  return absl::StrCat(cache_dir, "/", file.SampledDigest(), kSuffix);
}

std::string FormatDigestRecord(const Checkpoint& file, absl::string_view hex) {
  std::string text =
      absl::StrCat(kVersionLine, kDigestKey, hex, "\nsampled ", file.SampledDigest(), "\n");
  for (const GgufPart& part : file.parts()) {
    absl::StrAppend(&text, "part ", Identity(part.identity), "\n");
  }
  absl::StrAppend(&text, "check ", Hex(XXH3_128bits(text.data(), text.size())), "\n");
  return text;
}

std::optional<std::string> ParseDigestRecord(const Checkpoint& file, absl::string_view record) {
  absl::string_view rest = record;
  if (!absl::ConsumePrefix(&rest, kVersionLine)) return std::nullopt;
  if (!absl::ConsumePrefix(&rest, kDigestKey)) return std::nullopt;
  const std::string hex(rest.substr(0, kDigits));
  // Everything in the record is known in advance, except for the digest. The checksum covers the
  // digest.
  if (!IsDigest(hex) || record != FormatDigestRecord(file, hex)) return std::nullopt;
  return hex;
}

absl::StatusOr<ContentDigest> DigestContent(const Checkpoint& file,
                                            const ContentDigestOptions& options) {
  CHECK(options.threads >= 1);
  const bool recorded = file.file_bytes() >= options.min_recorded_bytes;
  ContentDigest digest;
  if (recorded) {
    std::optional<std::string> hex = FindRecord(file, options);
    if (hex.has_value()) return ContentDigest{*std::move(hex), DigestOrigin::kRemembered, {}};
  }
  ASSIGN_OR_RETURN(digest.hex, HashAll(file, options));
  if (recorded) digest.recorded = Record(file, digest.hex, options);
  return digest;
}

std::string QuantizedDigest(absl::string_view digest, GgmlType type) {
  const std::string text = absl::StrCat(kVersionLine, digest, " as ", GgmlTypeName(type), "\n");
  return Hex(XXH3_128bits(text.data(), text.size()));
}

std::optional<std::string> KnownContentDigest(const Checkpoint& file,
                                              const ContentDigestOptions& options) {
  if (file.file_bytes() >= options.min_recorded_bytes) return FindRecord(file, options);
  absl::StatusOr<std::string> hex = HashAll(file, options);
  if (!hex.ok()) return std::nullopt;
  return *std::move(hex);
}

}  // namespace tidepool::engine
