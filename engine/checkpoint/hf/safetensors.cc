#include "engine/checkpoint/hf/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/checkpoint/hf/json_file.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

constexpr uint64_t kSizeBytes = 8;
// The format itself has this limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxDimensions = 5;
constexpr int64_t kMaxElements = int64_t{1} << 48;

std::optional<GgmlType> TypeOf(absl::string_view dtype) {
  if (dtype == "F32") return GgmlType::kF32;
  if (dtype == "F16") return GgmlType::kF16;
  if (dtype == "BF16") return GgmlType::kBF16;
  if (dtype == "U8" || dtype == "I8") return GgmlType::kI8;
  if (dtype == "I64") return GgmlType::kI64;
  return std::nullopt;
}

// Reads the entries of one header.
class HeaderReader {
 public:
  HeaderReader(const std::string& path, uint64_t data_start, uint64_t data_bytes)
      : path_(path), data_start_(data_start), data_bytes_(data_bytes) {}

  absl::StatusOr<StoredTensor> Read(const std::string& name, const Json& entry) const {
    if (!entry.is_object()) return FileError(path_, name, "not an object, expected one");
    const JsonMembers members(path_, entry);
    const absl::StatusOr<std::string> dtype = members.String("dtype");
    if (!dtype.ok()) return FileError(path_, name, "has no dtype, expected a string");
    StoredTensor tensor;
    tensor.name = name;
    ASSIGN_OR_RETURN(const uint64_t elements, ReadShape(members.Find("shape"), &tensor));
    RETURN_IF_ERROR(ReadOffsets(members.Find("data_offsets"), &tensor));
    const std::optional<GgmlType> type = TypeOf(*dtype);
    if (!type.has_value()) {
      return FileUnsupported(path_, name,
                             absl::StrCat("dtype ", Shown(Json(*dtype)),
                                          " is not supported, expected F32, F16 or BF16; convert "
                                          "the checkpoint to one of them"));
    }
    tensor.type = *type;
    const uint64_t expected = elements * TypeInfo(*type).block_bytes;
    if (tensor.bytes != expected) {
      return FileError(path_, name,
                       absl::StrCat(tensor.bytes, " bytes of data, expected ", expected, " for ",
                                    *dtype, " of shape [", absl::StrJoin(tensor.shape, ", "), "]"));
    }
    return tensor;
  }

 private:
  absl::StatusOr<uint64_t> ReadShape(const Json* shape, StoredTensor* tensor) const {
    const auto wrong = [&] {
      return FileError(
          path_, tensor->name,
          absl::StrCat("shape ", shape == nullptr ? "missing" : Shown(*shape),
                       ", expected a list of 1 to ", kMaxDimensions, " sizes of at least 1"));
    };
    if (shape == nullptr || !shape->is_array()) return wrong();
    if (shape->empty() || shape->size() > kMaxDimensions) return wrong();
    int64_t elements = 1;
    for (const Json& size : *shape) {
      if (!size.is_number_unsigned()) return wrong();
      const auto value = size.get<uint64_t>();
      if (value == 0 || value > static_cast<uint64_t>(kMaxElements / elements)) return wrong();
      elements *= static_cast<int64_t>(value);
      tensor->shape.push_back(static_cast<int64_t>(value));
    }
    return elements;
  }

  absl::Status ReadOffsets(const Json* offsets, StoredTensor* tensor) const {
    if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2 ||
        !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
      return FileError(path_, tensor->name, "data_offsets missing or wrong, expected [BEGIN, END]");
    }
    const auto begin = (*offsets)[0].get<uint64_t>();
    const auto end = (*offsets)[1].get<uint64_t>();
    if (begin > end || end > data_bytes_) {
      return FileError(path_, tensor->name,
                       absl::StrCat("data_offsets [", begin, ", ", end,
                                    "], expected a range of the ", data_bytes_,
                                    " bytes of data in the file; if it is truncated, download "
                                    "it again"));
    }
    tensor->file_offset = data_start_ + begin;
    tensor->bytes = end - begin;
    return absl::OkStatus();
  }

  const std::string& path_;
  const uint64_t data_start_;
  const uint64_t data_bytes_;
};

// Returns an error if tensors overlap or if there are gaps. The format forbids both.
absl::Status CheckCoverage(const std::string& path, const SafetensorsContents& contents,
                           uint64_t file_bytes) {
  std::vector<const StoredTensor*> by_offset;
  for (const StoredTensor& tensor : contents.tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return a->file_offset < b->file_offset;
  });
  uint64_t at = contents.data_start;
  for (const StoredTensor* tensor : by_offset) {
    if (tensor->file_offset != at) {
      return FileError(path, tensor->name,
                       absl::StrCat("begins at byte ", tensor->file_offset, ", expected ", at,
                                    ", where the tensor before it ends"));
    }
    at += tensor->bytes;
  }
  if (at == file_bytes) return absl::OkStatus();
  return FileError(path, "",
                   absl::StrCat("has ", file_bytes, " bytes, expected ", at,
                                " by its header; download it again"));
}

}  // namespace

absl::StatusOr<SafetensorsContents> ParseSafetensors(const std::string& path,
                                                     absl::Span<const std::byte> bytes) {
  if (bytes.size() < kSizeBytes) {
    return FileError(path, "", absl::StrCat(bytes.size(), " bytes, expected a safetensors file"));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kSizeBytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - kSizeBytes) {
    return FileError(path, "",
                     absl::StrCat("a header of ", header_bytes, " bytes, expected at most ",
                                  std::min<uint64_t>(kMaxHeaderBytes, bytes.size() - kSizeBytes),
                                  "; if it is truncated, download it again"));
  }
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()) + kSizeBytes,
                               header_bytes);
  if (!absl::StartsWith(text, "{")) {
    return FileError(path, "", "the header does not begin with {, expected a safetensors file");
  }
  ASSIGN_OR_RETURN(const Json header, ParseJsonObject(path, text));
  SafetensorsContents contents;
  contents.data_start = kSizeBytes + header_bytes;
  const HeaderReader reader(path, contents.data_start, bytes.size() - contents.data_start);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    ASSIGN_OR_RETURN(StoredTensor tensor, reader.Read(name, entry));
    contents.tensors.push_back(std::move(tensor));
  }
  RETURN_IF_ERROR(CheckCoverage(path, contents, bytes.size()));
  return contents;
}

absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(const std::string& path,
                                                                         absl::string_view text) {
  ASSIGN_OR_RETURN(const Json index, ParseJsonObject(path, text));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    return FileError(path, "weight_map", "missing, expected an object {TENSOR: FILE}");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string* name = file.get_ptr<const std::string*>();
    // A name must not be a path, because a path could lead out of the folder.
    if (name == nullptr || absl::StrContains(*name, '/') || absl::StrContains(*name, '\0') ||
        !absl::EndsWith(*name, ".safetensors")) {
      return FileError(
          path, tensor,
          absl::StrCat(Shown(file), ", expected the name of a .safetensors file in this folder"));
    }
    files.emplace(tensor, *name);
  }
  return files;
}

}  // namespace tidepool::engine::hf
