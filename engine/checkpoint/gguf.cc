#include "engine/checkpoint/gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/checkpoint/gguf_parser.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kMaxParts = 99999;  // the largest number with the five digits in a file's name

// Length of the end of a split file's name: "-00001-of-00003.gguf".
constexpr size_t kSplitSuffixBytes = 20;

// Closes a file descriptor.
class FileCloser {
 public:
  explicit FileCloser(int descriptor) : descriptor_(descriptor) {}
  ~FileCloser() { close(descriptor_); }
  FileCloser(const FileCloser&) = delete;
  FileCloser& operator=(const FileCloser&) = delete;

 private:
  int descriptor_;
};

absl::Status OpenError(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": cannot be opened: ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  return absl::InvalidArgumentError(message);
}

bool IsInteger(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
      return true;
    default:
      return false;
  }
}

bool IsFloat(GgufValueType type) {
  return type == GgufValueType::kFloat32 || type == GgufValueType::kFloat64;
}

// Reads element `index` of an integer entry. Returns false if a u64 does not fit.
bool LoadInt(const GgufEntry& entry, uint64_t index, int64_t* value) {
  const std::byte* at = entry.data + index * ScalarBytes(entry.type);
  switch (entry.type) {
    case GgufValueType::kUint8:
      *value = LoadScalar<uint8_t>(at);
      return true;
    case GgufValueType::kInt8:
      *value = LoadScalar<int8_t>(at);
      return true;
    case GgufValueType::kUint16:
      *value = LoadScalar<uint16_t>(at);
      return true;
    case GgufValueType::kInt16:
      *value = LoadScalar<int16_t>(at);
      return true;
    case GgufValueType::kUint32:
      *value = LoadScalar<uint32_t>(at);
      return true;
    case GgufValueType::kInt32:
      *value = LoadScalar<int32_t>(at);
      return true;
    case GgufValueType::kInt64:
      *value = LoadScalar<int64_t>(at);
      return true;
    case GgufValueType::kUint64: {
      const uint64_t wide = LoadScalar<uint64_t>(at);
      *value = static_cast<int64_t>(wide);
      return wide <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    }
    default:
      return false;
  }
}

double LoadFloat(const GgufEntry& entry, uint64_t index) {
  const std::byte* at = entry.data + index * ScalarBytes(entry.type);
  return entry.type == GgufValueType::kFloat32 ? LoadScalar<float>(at) : LoadScalar<double>(at);
}

// Reads the string at `*at` and advances `*at`.
absl::string_view LoadString(const std::byte** at) {
  const uint64_t length = LoadScalar<uint64_t>(*at);
  const absl::string_view text(reinterpret_cast<const char*>(*at) + sizeof(length), length);
  *at += sizeof(length) + length;
  return text;
}

std::string FormatElement(const GgufEntry& entry, uint64_t index) {
  if (entry.type == GgufValueType::kBool) {
    return LoadScalar<uint8_t>(entry.data + index) != 0 ? "true" : "false";
  }
  if (IsFloat(entry.type)) return absl::StrFormat("%.9g", LoadFloat(entry, index));
  int64_t value = 0;
  if (LoadInt(entry, index, &value)) return absl::StrCat(value);
  return absl::StrCat(static_cast<uint64_t>(value));
}

// Parses the name of a split file. Returns false for any other name.
bool ParseSplitName(absl::string_view path, absl::string_view* prefix) {
  if (path.size() <= kSplitSuffixBytes || !absl::EndsWith(path, ".gguf")) return false;
  const absl::string_view suffix = path.substr(path.size() - kSplitSuffixBytes);
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-") return false;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!std::all_of(suffix.begin() + 1, suffix.begin() + 6, is_digit)) return false;
  if (!std::all_of(suffix.begin() + 10, suffix.begin() + 15, is_digit)) return false;
  *prefix = path.substr(0, path.size() - kSplitSuffixBytes);
  return true;
}

}  // namespace

FileIdentity IdentityOf(const struct stat& info) {
  const auto nanoseconds = [](const timespec& time) {
    return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
  };
  return {.size = static_cast<uint64_t>(info.st_size),
          .inode = info.st_ino,
          .modified_ns = nanoseconds(info.st_mtim),
          .changed_ns = nanoseconds(info.st_ctim)};
}

std::string GgufTensor::ShapeString() const {
  std::string text = "{";
  for (int i = 0; i < std::max(dim_count, 1); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", dims[i]);
  }
  return text + "}";
}

GgufFile::Part::Part(Part&& other) noexcept { *this = std::move(other); }

GgufFile::Part& GgufFile::Part::operator=(Part&& other) noexcept {
  std::swap(path, other.path);
  std::swap(data, other.data);
  std::swap(size, other.size);
  std::swap(data_start, other.data_start);
  std::swap(identity, other.identity);
  return *this;
}

GgufFile::Part::~Part() {
  if (data != nullptr) munmap(const_cast<std::byte*>(data), size);
}

absl::StatusOr<GgufFile::Part> GgufFile::Map(const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return OpenError(path, errno);
  const FileCloser closer(descriptor);
  struct stat info;
  if (fstat(descriptor, &info) != 0) return OpenError(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a regular file, expected a GGUF file"));
  }
  if (info.st_size == 0) return GgufError(path, "", "an empty file, expected a GGUF file");
  Part part;
  void* data = mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": cannot be mapped: ", std::strerror(errno)));
  }
  part.path = path;
  part.data = static_cast<const std::byte*>(data);
  part.size = info.st_size;
  part.identity = IdentityOf(info);
  return part;
}

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  GgufFile file;
  ASSIGN_OR_RETURN(Part first, Map(path));
  RETURN_IF_ERROR(file.AddPart(std::move(first)));
  ASSIGN_OR_RETURN(const int64_t count, file.IntOr("split.count", 1));
  if (count < 0 || count > kMaxParts) {
    return file.Error("split.count", absl::StrCat(count, ", expected 1 to ", kMaxParts));
  }
  if (count > 1) RETURN_IF_ERROR(file.OpenOtherParts(count));
  ASSIGN_OR_RETURN(const int64_t total,
                   file.IntOr("split.tensors.count", static_cast<int64_t>(file.tensors_.size())));
  if (count > 1 && total != static_cast<int64_t>(file.tensors_.size())) {
    return file.Error("split.tensors.count", absl::StrCat(total, ", but the parts hold ",
                                                          file.tensors_.size(), " tensors"));
  }
  return file;
}

GgufFile::~GgufFile() = default;

// Takes metadata from the first part only, and tensors from all parts.
absl::Status GgufFile::AddPart(Part part) {
  ASSIGN_OR_RETURN(GgufContents contents, ParseGguf(part.path, {part.data, part.size}));
  part.data_start = contents.data_start;
  if (parts_.empty()) {
    version_ = contents.version;
    entries_ = std::move(contents.entries);
    entry_index_.reserve(entries_.size());
    for (size_t i = 0; i < entries_.size(); ++i) entry_index_[entries_[i].key] = i;
  }
  tensor_index_.reserve(tensors_.size() + contents.tensors.size());
  for (GgufTensor& tensor : contents.tensors) {
    tensor.part = part_count();
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) {
      return GgufError(part.path, tensor.name, "is also in another part, expected it once");
    }
    tensors_.push_back(tensor);
  }
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

// Starts again from the first part, because the user may have named another one.
absl::Status GgufFile::OpenOtherParts(int64_t count) {
  const std::string named = path();
  absl::string_view prefix;
  if (!ParseSplitName(named, &prefix)) {
    return Error("split.count", absl::StrCat(count,
                                             " parts, expected this one to be called "
                                             "NAME-00001-of-",
                                             absl::Dec(count, absl::kZeroPad5),
                                             ".gguf: restore its published name"));
  }
  GgufFile joined;
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = absl::StrFormat("%s-%05d-of-%05d.gguf", prefix, i + 1, count);
    absl::StatusOr<Part> part = Map(name);
    if (absl::IsNotFound(part.status())) {
      return absl::NotFoundError(absl::StrCat(name, ": missing: part ", i + 1, " of ", count,
                                              " of ", named, "; put all parts into one folder"));
    }
    RETURN_IF_ERROR(part.status());
    GgufFile alone;
    RETURN_IF_ERROR(alone.AddPart(*std::move(part)));
    ASSIGN_OR_RETURN(const int64_t number, alone.Int("split.no"));
    ASSIGN_OR_RETURN(const int64_t said, alone.Int("split.count"));
    if (number != i || said != count) {
      return alone.Error("split.no", absl::StrCat(number, " among ", said, " parts, expected ", i,
                                                  " among ", count));
    }
    RETURN_IF_ERROR(joined.AddPart(std::move(alone.parts_.front())));
  }
  *this = std::move(joined);
  return absl::OkStatus();
}

uint64_t GgufFile::file_bytes() const {
  uint64_t total = 0;
  for (const Part& part : parts_) total += part.size;
  return total;
}

int64_t GgufFile::modified_ns() const {
  int64_t latest = 0;
  for (const Part& part : parts_) latest = std::max(latest, part.identity.modified_ns);
  return latest;
}

std::vector<GgufPart> GgufFile::parts() const {
  std::vector<GgufPart> parts;
  for (const Part& part : parts_) {
    parts.push_back({part.path, absl::MakeConstSpan(part.data, part.size), part.identity});
  }
  return parts;
}

const GgufEntry* GgufFile::Find(absl::string_view key) const {
  const auto found = entry_index_.find(key);
  return found == entry_index_.end() ? nullptr : &entries_[found->second];
}

const GgufTensor* GgufFile::FindTensor(absl::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

absl::Status GgufFile::Error(absl::string_view subject, absl::string_view message) const {
  return GgufError(path(), subject, message);
}

absl::Status GgufFile::WrongType(const GgufEntry& entry, absl::string_view expected) const {
  return Error(entry.key, absl::StrCat("found ", entry.is_array ? "an array of " : "a ",
                                       ValueTypeName(entry.type), ", expected ", expected));
}

absl::StatusOr<const GgufEntry*> GgufFile::Require(absl::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) return Error(key, "missing, expected this key in the metadata");
  return entry;
}

absl::StatusOr<int64_t> GgufFile::Int(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (entry->is_array || !IsInteger(entry->type)) return WrongType(*entry, "an integer");
  int64_t value = 0;
  if (!LoadInt(*entry, 0, &value)) return Error(key, "found 2^63 or more, expected less");
  return value;
}

absl::StatusOr<double> GgufFile::Float(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (entry->is_array || !IsFloat(entry->type)) return WrongType(*entry, "an f32");
  return LoadFloat(*entry, 0);
}

absl::StatusOr<bool> GgufFile::Bool(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (entry->is_array || entry->type != GgufValueType::kBool) return WrongType(*entry, "a bool");
  return LoadScalar<uint8_t>(entry->data) != 0;
}

absl::StatusOr<absl::string_view> GgufFile::String(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (entry->is_array || entry->type != GgufValueType::kString) {
    return WrongType(*entry, "a string");
  }
  const std::byte* at = entry->data;
  return LoadString(&at);
}

absl::StatusOr<int64_t> GgufFile::IntOr(absl::string_view key, int64_t fallback) const {
  return HasKey(key) ? Int(key) : fallback;
}

absl::StatusOr<double> GgufFile::FloatOr(absl::string_view key, double fallback) const {
  return HasKey(key) ? Float(key) : fallback;
}

absl::StatusOr<bool> GgufFile::BoolOr(absl::string_view key, bool fallback) const {
  return HasKey(key) ? Bool(key) : fallback;
}

absl::StatusOr<absl::string_view> GgufFile::StringOr(absl::string_view key,
                                                     absl::string_view fallback) const {
  return HasKey(key) ? String(key) : fallback;
}

absl::StatusOr<std::vector<absl::string_view>> GgufFile::Strings(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (!entry->is_array || entry->type != GgufValueType::kString) {
    return WrongType(*entry, "an array of strings");
  }
  std::vector<absl::string_view> values;
  values.reserve(entry->count);
  const std::byte* at = entry->data;
  for (uint64_t i = 0; i < entry->count; ++i) values.push_back(LoadString(&at));
  return values;
}

absl::StatusOr<std::vector<int64_t>> GgufFile::Ints(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (!entry->is_array || !IsInteger(entry->type)) return WrongType(*entry, "an array of integers");
  std::vector<int64_t> values(entry->count);
  for (uint64_t i = 0; i < entry->count; ++i) {
    if (!LoadInt(*entry, i, &values[i])) {
      return Error(key, absl::StrCat("element ", i, " is 2^63 or more, expected less"));
    }
  }
  return values;
}

absl::StatusOr<std::vector<float>> GgufFile::Floats(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (!entry->is_array || !IsFloat(entry->type)) return WrongType(*entry, "an array of f32");
  std::vector<float> values(entry->count);
  for (uint64_t i = 0; i < entry->count; ++i) values[i] = static_cast<float>(LoadFloat(*entry, i));
  return values;
}

absl::StatusOr<std::vector<bool>> GgufFile::Bools(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (!entry->is_array || entry->type != GgufValueType::kBool) {
    return WrongType(*entry, "an array of bools");
  }
  std::vector<bool> values(entry->count);
  for (uint64_t i = 0; i < entry->count; ++i) {
    values[i] = LoadScalar<uint8_t>(entry->data + i) != 0;
  }
  return values;
}

std::string GgufFile::FormatValue(const GgufEntry& entry) {
  constexpr uint64_t kShown = 8;
  const std::byte* at = entry.data;
  const auto format = [&](uint64_t index) {
    return entry.type == GgufValueType::kString ? Quote(LoadString(&at))
                                                : FormatElement(entry, index);
  };
  if (!entry.is_array) return format(0);
  std::string text = absl::StrCat(ValueTypeName(entry.type), "[", entry.count, "] {");
  for (uint64_t i = 0; i < std::min(entry.count, kShown); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", format(i));
  }
  return absl::StrCat(text, entry.count > kShown ? ", ...}" : "}");
}

absl::Status GgufFile::MapIn(const std::byte* data, size_t bytes) const {
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
  const uintptr_t page = sysconf(_SC_PAGESIZE);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data) / page * page;
  const size_t length = reinterpret_cast<uintptr_t>(data) + bytes - begin;
  madvise(reinterpret_cast<void*>(begin), length, MADV_WILLNEED);
  if (madvise(reinterpret_cast<void*>(begin), length, MADV_POPULATE_READ) == 0) {
    return absl::OkStatus();
  }
  if (errno != EFAULT && errno != EHWPOISON) return absl::OkStatus();
  for (const Part& part : parts_) {
    if (data < part.data || data >= part.data + part.size) continue;
    const size_t offset = data - part.data;
    return absl::DataLossError(absl::StrCat(part.path, ": bytes ", offset, " to ", offset + bytes,
                                            " cannot be read; restore the file, and check the "
                                            "disk"));
  }
  return absl::DataLossError(absl::StrCat(path(), ": cannot be read"));
}

absl::Status GgufFile::MapInHeaders() const {
  for (const Part& part : parts_) RETURN_IF_ERROR(MapIn(part.data, part.data_start));
  return absl::OkStatus();
}

void GgufFile::DropPages(const std::byte* data, size_t bytes) const {
  // Keep pages that the range shares with its neighbours.
  const uintptr_t page = sysconf(_SC_PAGESIZE);
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  // Only a hint: the kernel can also reclaim these pages when it needs memory.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace tidepool::engine
