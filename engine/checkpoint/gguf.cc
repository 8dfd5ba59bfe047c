#include "engine/checkpoint/gguf.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/checkpoint/gguf_parser.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

constexpr absl::string_view kExpected = "a GGUF file";
// the largest number that the five digits in a file's name can have
constexpr int64_t kMaxParts = 99999;

// Length of the suffix of a split file's name, such as "-00001-of-00003.gguf".
constexpr size_t kSplitSuffixBytes = 20;

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

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  GgufFile file;
  ASSIGN_OR_RETURN(MappedFile first, MappedFile::Open(path, kExpected));
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

// Uses the metadata of the first part only, and the tensors of all parts.
absl::Status GgufFile::AddPart(MappedFile part) {
  ASSIGN_OR_RETURN(GgufContents contents, ParseGguf(part.path, {part.data, part.size}));
  part.data_start = contents.data_start;
  if (parts_.empty()) {
    path_ = sidecar_prefix_ = part.path;
    format_ = absl::StrCat("GGUF v", contents.version);
    SetEntries(std::move(contents.entries));
  }
  for (GgufTensor& tensor : contents.tensors) {
    tensor.part = part_count();
    const absl::string_view name = tensor.name;
    if (!AddTensor(std::move(tensor))) {
      return GgufError(part.path, name, "is also in another part, expected it once");
    }
  }
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

// Opens all parts again, beginning with the first, because the path from the user may be that of
// any part.
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
    absl::StatusOr<MappedFile> part = MappedFile::Open(name, kExpected);
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

}  // namespace tidepool::engine
