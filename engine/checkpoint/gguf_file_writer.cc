#include "engine/checkpoint/gguf_file_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/gguf_parser.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kVersion = 3;
constexpr size_t kMaxNameBytes = 63;

template <typename T>
std::string Scalar(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string TypeTag(GgufValueType type) { return Scalar(static_cast<uint32_t>(type)); }

std::string Text(absl::string_view text) {
  return absl::StrCat(Scalar(static_cast<uint64_t>(text.size())), text);
}

std::string ArrayTag(GgufValueType type, uint64_t count) {
  return absl::StrCat(TypeTag(GgufValueType::kArray), TypeTag(type), Scalar(count));
}

// Number of bytes that the value of an entry takes in its file.
size_t ValueBytes(const GgufEntry& entry) {
  if (entry.type != GgufValueType::kString) return entry.count * ScalarBytes(entry.type);
  size_t bytes = 0;
  for (uint64_t i = 0; i < entry.count; ++i) {
    bytes += sizeof(uint64_t) + LoadScalar<uint64_t>(entry.data + bytes);
  }
  return bytes;
}

std::string FixedHeader(uint64_t tensors, const GgufMetadata& metadata) {
  return absl::StrCat(Scalar(kMagic), Scalar(kVersion), Scalar(tensors),
                      Scalar(static_cast<uint64_t>(metadata.size())), metadata.Bytes());
}

uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

GgufMetadata& GgufMetadata::Set(absl::string_view key, std::string value) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  if (found != entries_.end()) {
    found->value = std::move(value);
  } else {
    entries_.push_back({std::string(key), std::move(value)});
  }
  return *this;
}

GgufMetadata& GgufMetadata::SetU32(absl::string_view key, uint32_t value) {
  if (key == "general.alignment") alignment_ = value;
  return Set(key, TypeTag(GgufValueType::kUint32) + Scalar(value));
}

GgufMetadata& GgufMetadata::SetF32(absl::string_view key, float value) {
  return Set(key, TypeTag(GgufValueType::kFloat32) + Scalar(value));
}

GgufMetadata& GgufMetadata::SetBool(absl::string_view key, bool value) {
  return Set(key, TypeTag(GgufValueType::kBool) + Scalar(static_cast<uint8_t>(value)));
}

GgufMetadata& GgufMetadata::SetString(absl::string_view key, absl::string_view value) {
  return Set(key, TypeTag(GgufValueType::kString) + Text(value));
}

GgufMetadata& GgufMetadata::SetStrings(absl::string_view key,
                                       absl::Span<const std::string> values) {
  std::string bytes = ArrayTag(GgufValueType::kString, values.size());
  for (const std::string& value : values) bytes += Text(value);
  return Set(key, std::move(bytes));
}

GgufMetadata& GgufMetadata::SetBools(absl::string_view key, const std::vector<bool>& values) {
  std::string bytes = ArrayTag(GgufValueType::kBool, values.size());
  for (const bool value : values) bytes += value ? '\1' : '\0';
  return Set(key, std::move(bytes));
}

GgufMetadata& GgufMetadata::SetI32s(absl::string_view key, absl::Span<const int32_t> values) {
  std::string bytes = ArrayTag(GgufValueType::kInt32, values.size());
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int32_t));
  return Set(key, std::move(bytes));
}

GgufMetadata& GgufMetadata::SetF32s(absl::string_view key, absl::Span<const float> values) {
  std::string bytes = ArrayTag(GgufValueType::kFloat32, values.size());
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return Set(key, std::move(bytes));
}

GgufMetadata& GgufMetadata::Copy(const GgufEntry& entry) {
  std::string bytes = entry.is_array ? ArrayTag(entry.type, entry.count) : TypeTag(entry.type);
  bytes.append(reinterpret_cast<const char*>(entry.data), ValueBytes(entry));
  if (entry.key == "general.alignment") alignment_ = LoadScalar<uint32_t>(entry.data);
  return Set(entry.key, std::move(bytes));
}

std::string GgufMetadata::Bytes() const {
  std::string bytes;
  for (const Entry& entry : entries_) absl::StrAppend(&bytes, Text(entry.key), entry.value);
  return bytes;
}

std::string GgufHeader(const GgufMetadata& metadata) { return FixedHeader(0, metadata); }

absl::StatusOr<std::unique_ptr<GgufFileWriter>> GgufFileWriter::Create(
    const std::string& path, const GgufMetadata& metadata, std::vector<GgufTensorPlan> tensors,
    base::ExistingFile existing) {
  std::unique_ptr<GgufFileWriter> writer(
      new GgufFileWriter(metadata.alignment(), std::move(tensors)));
  const std::string header = writer->Header(metadata);
  uint64_t bytes = RoundUp(header.size(), writer->alignment_);
  for (const GgufTensorPlan& tensor : writer->tensors_) {
    bytes += RoundUp(tensor.bytes(), writer->alignment_);
  }
  writer->file_bytes_ = bytes;
  ASSIGN_OR_RETURN(writer->file_, base::AtomicFile::Create(
                                      path, {.existing = existing,
                                             .bytes = static_cast<int64_t>(writer->file_bytes_)}));
  RETURN_IF_ERROR(writer->file_->Append(header.data(), static_cast<int64_t>(header.size())));
  RETURN_IF_ERROR(writer->Pad());
  if (!writer->tensors_.empty()) writer->left_ = writer->tensors_.front().bytes();
  return writer;
}

std::string GgufFileWriter::Header(const GgufMetadata& metadata) const {
  std::string header = FixedHeader(tensors_.size(), metadata);
  uint64_t offset = 0;
  for (const GgufTensorPlan& tensor : tensors_) {
    CHECK(!tensor.name.empty() && tensor.name.size() <= kMaxNameBytes) << tensor.name;
    CHECK_EQ(tensor.dims[0] % TypeInfo(tensor.type).block_elements, 0) << tensor.name;
    absl::StrAppend(&header, Text(tensor.name), Scalar(static_cast<uint32_t>(tensor.dim_count)));
    for (int i = 0; i < tensor.dim_count; ++i) {
      absl::StrAppend(&header, Scalar(static_cast<uint64_t>(tensor.dims[i])));
    }
    absl::StrAppend(&header, Scalar(static_cast<uint32_t>(tensor.type)), Scalar(offset));
    offset += RoundUp(tensor.bytes(), alignment_);
  }
  return header;
}

absl::Status GgufFileWriter::Pad() {
  const auto position = static_cast<uint64_t>(file_->position());
  const std::string zeros(RoundUp(position, alignment_) - position, '\0');
  return file_->Append(zeros.data(), static_cast<int64_t>(zeros.size()));
}

absl::Status GgufFileWriter::Append(absl::Span<const std::byte> bytes) {
  while (!bytes.empty()) {
    CHECK(tensor_ < tensors_.size()) << "more data than tensors";
    const size_t count = std::min<uint64_t>(bytes.size(), left_);
    RETURN_IF_ERROR(file_->Append(bytes.data(), static_cast<int64_t>(count)));
    bytes.remove_prefix(count);
    left_ -= count;
    if (left_ > 0) continue;
    RETURN_IF_ERROR(Pad());
    if (++tensor_ < tensors_.size()) left_ = tensors_[tensor_].bytes();
  }
  return absl::OkStatus();
}

absl::Status GgufFileWriter::Finish() {
  CHECK(tensor_ == tensors_.size()) << "data of " << tensors_[tensor_].name << " is missing";
  return file_->Finish();
}

}  // namespace tidepool::engine
