#include "engine/checkpoint/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

// Limits for the numbers in a file. They are far above those of real checkpoints. Memory is also
// limited by the size of the file, because every counted item takes bytes in the file.
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxKeyBytes = (1 << 16) - 1;
constexpr uint64_t kMaxTensorNameBytes = 63;
constexpr uint64_t kMaxStringBytes = 1 << 30;
constexpr uint64_t kMaxArrayElements = 1 << 30;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kMaxElements = uint64_t{1} << 48;
constexpr uint32_t kMaxDims = 4;

// Minimum bytes of an entry (key length, one byte of key, type, value) and of a tensor info (name
// length, one byte of name, dimension count, type, offset).
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinInfoBytes = 8 + 1 + 4 + 4 + 8;

constexpr uint64_t kDefaultAlignment = 32;

// Maximum bytes after the last tensor, apart from the padding that the alignment requires.
constexpr uint64_t kMaxPadding = 4096;

// Maximum bytes of a key or a tensor's name in an error message.
constexpr size_t kMaxSubjectBytes = 120;

// A position in the mapped bytes. A read past the end fails and does not change the position.
class Cursor {
 public:
  explicit Cursor(absl::Span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }
  const std::byte* here() const { return bytes_.data() + position_; }

  template <typename T>
  bool Read(T* value) {
    if (remaining() < sizeof(T)) return false;
    *value = LoadScalar<T>(here());
    position_ += sizeof(T);
    return true;
  }
  bool Skip(uint64_t count) {
    if (remaining() < count) return false;
    position_ += count;
    return true;
  }

 private:
  absl::Span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

bool IsKnown(uint32_t type) { return type <= static_cast<uint32_t>(GgufValueType::kFloat64); }

// Reads one file. Its parts are, in order: header, entries, tensor infos, data.
class Parser {
 public:
  Parser(const std::string& path, absl::Span<const std::byte> bytes)
      : path_(path), bytes_(bytes), cursor_(bytes) {}

  absl::StatusOr<GgufContents> Parse() {
    RETURN_IF_ERROR(ReadHeader());
    RETURN_IF_ERROR(ReadEntries());
    RETURN_IF_ERROR(ReadAlignment());
    RETURN_IF_ERROR(ReadInfos());
    RETURN_IF_ERROR(PlaceTensors());
    RETURN_IF_ERROR(CheckOverlap());
    RETURN_IF_ERROR(CheckEnd());
    return std::move(contents_);
  }

 private:
  absl::Status Error(absl::string_view subject, absl::string_view message) const {
    return GgufError(path_, subject, message);
  }
  absl::Status Truncated(absl::string_view subject) const {
    return Error(subject, absl::StrCat("the file ends at byte ", bytes_.size(),
                                       ", before the end of this entry: is the download "
                                       "complete?"));
  }

  absl::Status ReadHeader();
  absl::Status ReadString(absl::string_view subject, uint64_t limit, absl::string_view* value);
  absl::Status ReadEntries();
  absl::Status ReadEntry(uint64_t index);
  absl::Status SkipValue(const GgufEntry& entry);
  absl::Status ReadAlignment();
  absl::Status ReadInfos();
  absl::Status ReadInfo(uint64_t index);
  absl::Status ReadDims(GgufTensor* tensor);
  absl::Status PlaceTensors();
  absl::Status CheckOverlap();
  absl::Status CheckEnd() const;

  const std::string& path_;
  absl::Span<const std::byte> bytes_;
  Cursor cursor_;
  uint64_t tensor_count_ = 0;
  uint64_t entry_count_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  absl::flat_hash_set<absl::string_view>
      names_;  // names of the entries so far; later, names of the tensors so far
  GgufContents contents_;
};

absl::Status Parser::ReadHeader() {
  uint32_t magic = 0;
  uint32_t version = 0;
  if (!cursor_.Read(&magic)) {
    return Error("header", absl::StrCat(bytes_.size(), " bytes, too short for a GGUF file"));
  }
  if (magic != 0x46554747) {  // "GGUF"
    return Error("header", absl::StrCat("the first bytes are ",
                                        absl::CHexEscape(absl::string_view(
                                            reinterpret_cast<const char*>(bytes_.data()), 4)),
                                        ", expected GGUF: this is not a GGUF file"));
  }
  if (!cursor_.Read(&version)) return Truncated("header");
  if (version != 0 && (version & 0xffff) == 0) {
    return Error("header", "a big-endian file, expected little-endian: convert it again");
  }
  if (version != 2 && version != 3) {
    return Error("header", absl::StrCat("GGUF version ", version, ", expected 2 or 3"));
  }
  contents_.version = static_cast<int>(version);
  if (!cursor_.Read(&tensor_count_) || !cursor_.Read(&entry_count_)) return Truncated("header");
  if (entry_count_ > kMaxKeys || entry_count_ > cursor_.remaining() / kMinEntryBytes) {
    return Error("header", absl::StrCat(entry_count_, " metadata keys, expected at most ",
                                        std::min(kMaxKeys, cursor_.remaining() / kMinEntryBytes)));
  }
  if (tensor_count_ > kMaxTensors || tensor_count_ > cursor_.remaining() / kMinInfoBytes) {
    return Error("header",
                 absl::StrCat(tensor_count_, " tensors, expected at most ",
                              std::min(kMaxTensors, cursor_.remaining() / kMinInfoBytes)));
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadString(absl::string_view subject, uint64_t limit,
                                absl::string_view* value) {
  uint64_t length = 0;
  if (!cursor_.Read(&length)) return Truncated(subject);
  if (length > limit) {
    return Error(subject, absl::StrCat("a string of ", length, " bytes, expected at most ", limit));
  }
  const char* text = reinterpret_cast<const char*>(cursor_.here());
  if (!cursor_.Skip(length)) return Truncated(subject);
  *value = absl::string_view(text, length);
  return absl::OkStatus();
}

absl::Status Parser::ReadEntries() {
  contents_.entries.reserve(entry_count_);
  for (uint64_t i = 0; i < entry_count_; ++i) RETURN_IF_ERROR(ReadEntry(i));
  return absl::OkStatus();
}

absl::Status Parser::ReadEntry(uint64_t index) {
  GgufEntry entry;
  const std::string ordinal = absl::StrCat("metadata key ", index);
  RETURN_IF_ERROR(ReadString(ordinal, kMaxKeyBytes, &entry.key));
  if (entry.key.empty()) return Error(ordinal, "an empty name, expected a key's name");
  const absl::string_view subject = entry.key;
  if (!names_.insert(entry.key).second) return Error(subject, "appears twice, expected once");
  uint32_t type = 0;
  if (!cursor_.Read(&type)) return Truncated(subject);
  if (type == static_cast<uint32_t>(GgufValueType::kArray)) {
    entry.is_array = true;
    if (!cursor_.Read(&type) || !cursor_.Read(&entry.count)) return Truncated(subject);
    if (type == static_cast<uint32_t>(GgufValueType::kArray)) {
      return Error(subject, "an array of arrays, expected an array of plain values");
    }
    if (entry.count > kMaxArrayElements) {
      return Error(subject, absl::StrCat("an array of ", entry.count,
                                         " elements, expected at most ", kMaxArrayElements));
    }
  }
  if (!IsKnown(type)) {
    return Error(subject, absl::StrCat("unknown value type ", type, ", expected 0 to 12"));
  }
  entry.type = static_cast<GgufValueType>(type);
  entry.data = cursor_.here();
  RETURN_IF_ERROR(SkipValue(entry));
  contents_.entries.push_back(entry);
  return absl::OkStatus();
}

// Skips the value of an entry. Checks the whole value, so that later reads need no checks.
absl::Status Parser::SkipValue(const GgufEntry& entry) {
  if (entry.type == GgufValueType::kString) {
    for (uint64_t i = 0; i < entry.count; ++i) {
      uint64_t length = 0;
      if (cursor_.Read(&length) && length <= kMaxStringBytes && cursor_.Skip(length)) continue;
      if (length > kMaxStringBytes) {
        return Error(entry.key, absl::StrCat("a string of ", length, " bytes, expected at most ",
                                             kMaxStringBytes));
      }
      return Truncated(entry.key);
    }
    return absl::OkStatus();
  }
  if (!cursor_.Skip(entry.count * ScalarBytes(entry.type))) return Truncated(entry.key);
  if (entry.type == GgufValueType::kBool) {
    for (uint64_t i = 0; i < entry.count; ++i) {
      const int value = static_cast<int>(entry.data[i]);
      if (value > 1) {
        return Error(entry.key, absl::StrCat("a bool of value ", value, ", expected 0 or 1"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadAlignment() {
  const auto entry =
      std::find_if(contents_.entries.begin(), contents_.entries.end(),
                   [](const GgufEntry& candidate) { return candidate.key == "general.alignment"; });
  if (entry == contents_.entries.end()) return absl::OkStatus();
  if (entry->is_array || entry->type != GgufValueType::kUint32) {
    return Error("general.alignment",
                 absl::StrCat("a value of type ", ValueTypeName(entry->type), ", expected u32"));
  }
  alignment_ = LoadScalar<uint32_t>(entry->data);
  if (!std::has_single_bit(alignment_) || alignment_ > kMaxAlignment) {
    return Error("general.alignment",
                 absl::StrCat(alignment_, ", expected a power of two up to ", kMaxAlignment));
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadInfos() {
  names_.clear();
  contents_.tensors.reserve(tensor_count_);
  for (uint64_t i = 0; i < tensor_count_; ++i) RETURN_IF_ERROR(ReadInfo(i));
  return absl::OkStatus();
}

absl::Status Parser::ReadInfo(uint64_t index) {
  GgufTensor tensor;
  const std::string ordinal = absl::StrCat("tensor ", index);
  RETURN_IF_ERROR(ReadString(ordinal, kMaxTensorNameBytes, &tensor.name));
  if (tensor.name.empty()) return Error(ordinal, "an empty name, expected a tensor's name");
  const absl::string_view subject = tensor.name;
  if (!names_.insert(tensor.name).second) return Error(subject, "appears twice, expected once");
  RETURN_IF_ERROR(ReadDims(&tensor));
  uint32_t type = 0;
  // Until PlaceTensors, file_offset is relative to the start of the data section.
  if (!cursor_.Read(&type) || !cursor_.Read(&tensor.file_offset)) return Truncated(subject);
  const GgmlTypeInfo* info = FindGgmlType(type);
  if (info == nullptr) {
    return Error(subject, absl::StrCat(DescribeBadGgmlType(type), ", expected a GGML type"));
  }
  tensor.type = info->type;
  if (tensor.dims[0] % info->block_elements != 0) {
    return Error(subject, absl::StrCat("rows of ", tensor.dims[0],
                                       " elements, expected a multiple "
                                       "of ",
                                       info->block_elements, " for type ", info->name));
  }
  // This cannot overflow, because the size is at most kMaxElements * 8 bytes.
  tensor.bytes = static_cast<size_t>(tensor.rows()) * tensor.row_bytes();
  if (tensor.file_offset % alignment_ != 0) {
    return Error(subject, absl::StrCat("data at offset ", tensor.file_offset,
                                       ", expected a multiple of ", alignment_));
  }
  contents_.tensors.push_back(tensor);
  return absl::OkStatus();
}

absl::Status Parser::ReadDims(GgufTensor* tensor) {
  const absl::string_view subject = tensor->name;
  uint32_t count = 0;
  if (!cursor_.Read(&count)) return Truncated(subject);
  if (count > kMaxDims) {
    return Error(subject, absl::StrCat(count, " dimensions, expected at most ", kMaxDims));
  }
  tensor->dim_count = static_cast<int>(count);
  uint64_t elements = 1;
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t size = 0;
    if (!cursor_.Read(&size)) return Truncated(subject);
    if (size == 0 || size > kMaxElements / elements) {
      return Error(subject, absl::StrCat("dimension ", i, " is ", size,
                                         ", expected at least 1 and "
                                         "at most 2^48 elements in all"));
    }
    elements *= size;
    tensor->dims[i] = static_cast<int64_t>(size);
  }
  return absl::OkStatus();
}

absl::Status Parser::PlaceTensors() {
  // This cannot overflow, because the position is at most the size of the file.
  const uint64_t start = (cursor_.position() + alignment_ - 1) / alignment_ * alignment_;
  contents_.data_start = std::min<uint64_t>(start, bytes_.size());
  const uint64_t data_bytes = bytes_.size() - contents_.data_start;
  for (GgufTensor& tensor : contents_.tensors) {
    if (tensor.file_offset > data_bytes || tensor.bytes > data_bytes - tensor.file_offset) {
      return Error(tensor.name,
                   absl::StrCat("needs ", tensor.bytes, " bytes at offset ", tensor.file_offset,
                                " of the data, but the file holds ", data_bytes,
                                " bytes of data; expected all of it: is the download complete?"));
    }
    tensor.file_offset += contents_.data_start;
    tensor.data = bytes_.data() + tensor.file_offset;
  }
  return absl::OkStatus();
}

absl::Status Parser::CheckOverlap() {
  std::vector<const GgufTensor*> order;
  order.reserve(contents_.tensors.size());
  for (const GgufTensor& tensor : contents_.tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->file_offset < b->file_offset;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->file_offset < order[i - 1]->file_offset + order[i - 1]->bytes) {
      return Error(order[i]->name,
                   absl::StrCat("its data overlaps that of ", Quote(order[i - 1]->name),
                                ", expected tensors apart"));
    }
  }
  return absl::OkStatus();
}

// If there are more data than the tensors need, a tensor info was probably lost. The start of the
// data is then also wrong.
absl::Status Parser::CheckEnd() const {
  uint64_t end = contents_.data_start;
  absl::string_view last = "header";
  for (const GgufTensor& tensor : contents_.tensors) {
    if (tensor.file_offset + tensor.bytes <= end) continue;
    end = tensor.file_offset + tensor.bytes;
    last = tensor.name;
  }
  const uint64_t left = bytes_.size() - end;
  if (left <= std::max(alignment_, kMaxPadding)) return absl::OkStatus();
  return Error(last,
               absl::StrCat("is the last of ", contents_.tensors.size(), " tensors, but ", left,
                            " bytes follow, expected at most padding: the header's counts "
                            "or the file's end are wrong"));
}

}  // namespace

absl::StatusOr<GgufContents> ParseGguf(const std::string& path, absl::Span<const std::byte> bytes) {
  return Parser(path, bytes).Parse();
}

size_t ScalarBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

absl::string_view ValueTypeName(GgufValueType type) {
  constexpr absl::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                          "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

std::string Quote(absl::string_view text, size_t limit) {
  const bool cut = text.size() > limit;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, limit)), cut ? "...\"" : "\"");
}

absl::Status GgufError(absl::string_view path, absl::string_view subject,
                       absl::string_view message) {
  if (subject.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", message));
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": ", absl::CHexEscape(subject.substr(0, kMaxSubjectBytes)), ": ", message));
}

}  // namespace tidepool::engine
