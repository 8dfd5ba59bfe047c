#include "engine/checkpoint/checkpoint.h"

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

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/checkpoint/gguf_parser.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

// Owns a file descriptor, and closes it.
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

// Reads element `index` of an integer entry. Returns false if a u64 does not fit into an int64.
bool LoadInt(const GgufEntry& entry, uint64_t index, int64_t* value) {
  const std::byte* at = entry.data + index * ScalarBytes(entry.type);
  switch (entry.type) {
    case GgufValueType::kUint8:
      *value = LoadScalar<uint8_t>(at);
      return true;
    case GgufValueType::kInt8:
      *value = static_cast<int64_t>(LoadScalar<int8_t>(at));
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

const std::byte* GgufTensor::row(int64_t index) const {
  CHECK(!transposed()) << name;
  const std::byte* slab = data;
  if (!slabs.empty()) {
    slab = slabs[index / rows_of_slab()];
    index %= rows_of_slab();
  }
  if (head_rows > 0) {
    const int64_t within = index % head_rows;
    index += within / 2 + within % 2 * (head_rows / 2) - within;
  }
  return slab + index * row_bytes();
}

namespace {

// Copies `rows` rows of elements of kSize bytes of a transposed tensor. `from` is the first row.
template <size_t kSize>
void CopyTransposed(const GgufTensor& tensor, const std::byte* from, int64_t rows, std::byte* out) {
  const int64_t columns = tensor.dims[0];
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = column * tensor.column_step + row * tensor.row_step;
      std::memcpy(out + (row * columns + column) * kSize, from + at * kSize, kSize);
    }
  }
}

}  // namespace

void GgufTensor::CopyRows(int64_t first, int64_t count, std::byte* out) const {
  const auto stride = static_cast<int64_t>(row_bytes());
  if (!transposed()) {
    for (int64_t i = 0; i < count; ++i) std::copy_n(row(first + i), stride, out + i * stride);
    return;
  }
  constexpr int64_t kRowsAtOnce = 32;  // so that a cache line of the file is read once
  const int64_t size = TypeInfo(type).block_bytes;
  CHECK(size == sizeof(float) || size == sizeof(uint16_t)) << name;
  for (const int64_t end = first + count; first < end;) {
    const int64_t within = first % rows_of_slab();
    const int64_t rows = std::min({end - first, rows_of_slab() - within, kRowsAtOnce});
    const std::byte* const from = slabs[first / rows_of_slab()] + within * row_step * size;
    if (size == sizeof(float)) {
      CopyTransposed<sizeof(float)>(*this, from, rows, out);
    } else {
      CopyTransposed<sizeof(uint16_t)>(*this, from, rows, out);
    }
    out += rows * stride;
    first += rows;
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path, other.path);
  std::swap(data, other.data);
  std::swap(size, other.size);
  std::swap(data_start, other.data_start);
  std::swap(identity, other.identity);
  return *this;
}

MappedFile::~MappedFile() {
  if (data != nullptr) munmap(const_cast<std::byte*>(data), size);
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path, absl::string_view expected) {
  // Without O_NONBLOCK, opening a FIFO waits until something writes to it.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return OpenError(path, errno);
  const FileCloser closer(descriptor);
  struct stat info;
  if (fstat(descriptor, &info) != 0) return OpenError(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a regular file, expected ", expected));
  }
  if (info.st_size == 0) {
    return GgufError(path, "", absl::StrCat("an empty file, expected ", expected));
  }
  MappedFile part;
  void* data = mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": cannot be mapped: ", std::strerror(errno)));
  }
  part.path = path;
  part.data = static_cast<const std::byte*>(data);
  part.size = part.data_start = info.st_size;
  part.identity = IdentityOf(info);
  return part;
}

Checkpoint::~Checkpoint() = default;

void Checkpoint::SetEntries(std::vector<GgufEntry> entries) {
  entries_ = std::move(entries);
  entry_index_.reserve(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) entry_index_[entries_[i].key] = i;
}

bool Checkpoint::AddTensor(GgufTensor tensor) {
  if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) return false;
  tensors_.push_back(std::move(tensor));
  return true;
}

std::string Checkpoint::SidecarPath(absl::string_view suffix) const {
  return absl::StrCat(sidecar_prefix_, suffix);
}

uint64_t Checkpoint::file_bytes() const {
  uint64_t total = 0;
  for (const MappedFile& part : parts_) total += part.size;
  return total;
}

int64_t Checkpoint::modified_ns() const {
  int64_t latest = 0;
  for (const MappedFile& part : parts_) latest = std::max(latest, part.identity.modified_ns);
  return latest;
}

std::vector<GgufPart> Checkpoint::parts() const {
  std::vector<GgufPart> parts;
  for (const MappedFile& part : parts_) {
    parts.push_back({part.path, absl::MakeConstSpan(part.data, part.size), part.identity});
  }
  return parts;
}

const GgufEntry* Checkpoint::Find(absl::string_view key) const {
  const auto found = entry_index_.find(key);
  return found == entry_index_.end() ? nullptr : &entries_[found->second];
}

const GgufTensor* Checkpoint::FindTensor(absl::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

absl::Status Checkpoint::WrongType(const GgufEntry& entry, absl::string_view expected) const {
  return Error(entry.key, absl::StrCat("found ", entry.is_array ? "an array of " : "a ",
                                       ValueTypeName(entry.type), ", expected ", expected));
}

absl::StatusOr<const GgufEntry*> Checkpoint::Require(absl::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) return Error(key, "missing, expected this key in the metadata");
  return entry;
}

absl::StatusOr<int64_t> Checkpoint::Int(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (entry->is_array || !IsInteger(entry->type)) return WrongType(*entry, "an integer");
  int64_t value = 0;
  if (!LoadInt(*entry, 0, &value)) return Error(key, "found 2^63 or more, expected less");
  return value;
}

absl::StatusOr<double> Checkpoint::Float(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (entry->is_array || !IsFloat(entry->type)) return WrongType(*entry, "an f32");
  return LoadFloat(*entry, 0);
}

absl::StatusOr<bool> Checkpoint::Bool(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (entry->is_array || entry->type != GgufValueType::kBool) return WrongType(*entry, "a bool");
  return LoadScalar<uint8_t>(entry->data) != 0;
}

absl::StatusOr<absl::string_view> Checkpoint::String(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (entry->is_array || entry->type != GgufValueType::kString) {
    return WrongType(*entry, "a string");
  }
  const std::byte* at = entry->data;
  return LoadString(&at);
}

absl::StatusOr<int64_t> Checkpoint::IntOr(absl::string_view key, int64_t fallback) const {
  return HasKey(key) ? Int(key) : fallback;
}

absl::StatusOr<double> Checkpoint::FloatOr(absl::string_view key, double fallback) const {
  return HasKey(key) ? Float(key) : fallback;
}

absl::StatusOr<bool> Checkpoint::BoolOr(absl::string_view key, bool fallback) const {
  return HasKey(key) ? Bool(key) : fallback;
}

absl::StatusOr<absl::string_view> Checkpoint::StringOr(absl::string_view key,
                                                       absl::string_view fallback) const {
  return HasKey(key) ? String(key) : fallback;
}

absl::StatusOr<std::vector<absl::string_view>> Checkpoint::Strings(absl::string_view key) const {
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

absl::StatusOr<std::vector<int64_t>> Checkpoint::Ints(absl::string_view key) const {
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

absl::StatusOr<std::vector<float>> Checkpoint::Floats(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (!entry->is_array || !IsFloat(entry->type)) return WrongType(*entry, "an array of f32");
  std::vector<float> values(entry->count);
  for (uint64_t i = 0; i < entry->count; ++i) values[i] = static_cast<float>(LoadFloat(*entry, i));
  return values;
}

absl::StatusOr<std::vector<bool>> Checkpoint::Bools(absl::string_view key) const {
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

std::string Checkpoint::FormatValue(const GgufEntry& entry) {
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

const MappedFile* Checkpoint::FindPart(const std::byte* data) const {
  for (const MappedFile& part : parts_) {
    if (data >= part.data && data < part.data + part.size) return &part;
  }
  return nullptr;
}

absl::Status Checkpoint::MapIn(const std::byte* data, size_t bytes) const {
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
  const size_t before = reinterpret_cast<uintptr_t>(data) % sysconf(_SC_PAGESIZE);
  void* const begin = const_cast<std::byte*>(data) - before;
  const size_t length = before + bytes;
  madvise(begin, length, MADV_WILLNEED);
  if (madvise(begin, length, MADV_POPULATE_READ) == 0) {
    return absl::OkStatus();
  }
  if (errno != EFAULT && errno != EHWPOISON) return absl::OkStatus();
  const MappedFile* part = FindPart(data);
  if (part == nullptr) return absl::DataLossError(absl::StrCat(path(), ": cannot be read"));
  const size_t offset = data - part->data;
  return absl::DataLossError(absl::StrCat(part->path, ": bytes ", offset, " to ", offset + bytes,
                                          " cannot be read; restore the file, and check the disk"));
}

absl::Status Checkpoint::MapInHeaders() const {
  for (const MappedFile& part : parts_) RETURN_IF_ERROR(MapIn(part.data, part.data_start));
  return absl::OkStatus();
}

namespace {

// Calls `use` with the bytes that contain the rows [first, first + rows). If the rows of heads are
// interleaved, these are the bytes of every head that has one of the rows. If the tensor is
// transposed, these are the bytes of every slab.
template <typename Use>
void ForEachRange(const GgufTensor& tensor, int64_t first, int64_t rows, const Use& use) {
  const int64_t slab_rows = tensor.slabs.empty() ? tensor.rows() : tensor.rows_of_slab();
  const int64_t end = first + rows;
  while (first < end) {
    const int64_t slab = first / slab_rows;
    const int64_t slab_end = std::min(end, (slab + 1) * slab_rows);
    int64_t begin = first - slab * slab_rows;
    int64_t stop = slab_end - slab * slab_rows;
    if (tensor.head_rows > 0) {
      begin -= begin % tensor.head_rows;
      stop += (tensor.head_rows - stop % tensor.head_rows) % tensor.head_rows;
    }
    const std::byte* base = tensor.slabs.empty() ? tensor.data : tensor.slabs[slab];
    if (tensor.transposed()) {
      const int64_t last =
          (tensor.dims[0] - 1) * tensor.column_step + (slab_rows - 1) * tensor.row_step;
      use(base, (last + 1) * TypeInfo(tensor.type).block_bytes);
      first = slab_end;
      continue;
    }
    use(base + begin * tensor.row_bytes(), (stop - begin) * tensor.row_bytes());
    first = slab_end;
  }
}

}  // namespace

absl::Status Checkpoint::MapInRows(const GgufTensor& tensor, int64_t first, int64_t rows) const {
  absl::Status status;
  ForEachRange(tensor, first, rows,
               [&](const std::byte* data, size_t bytes) { status.Update(MapIn(data, bytes)); });
  return status;
}

void Checkpoint::DropRows(const GgufTensor& tensor, int64_t first, int64_t rows) const {
  ForEachRange(tensor, first, rows,
               [&](const std::byte* data, size_t bytes) { DropPages(data, bytes); });
}

void Checkpoint::DropPages(const std::byte* data, size_t bytes) const {
  // Dropping pages of memory that is not part of a file would lose their contents.
  if (FindPart(data) == nullptr) return;
  // Only drop whole pages of the range. A page at either end may also have bytes of a neighbour.
  const size_t page = sysconf(_SC_PAGESIZE);
  const size_t before = (page - reinterpret_cast<uintptr_t>(data) % page) % page;
  if (before >= bytes) return;
  const size_t whole = (bytes - before) / page * page;
  // If this fails, nothing is lost, because the kernel can also reclaim these pages when it needs
  // memory.
  if (whole > 0) madvise(const_cast<std::byte*>(data) + before, whole, MADV_DONTNEED);
}

}  // namespace tidepool::engine
