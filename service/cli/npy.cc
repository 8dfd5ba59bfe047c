#include "service/cli/npy.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tidepool::service {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

// Room for any two numbers of 64 bits; the data that follows is aligned, as the format asks.
constexpr size_t kHeaderBytes = 128;

}  // namespace

absl::StatusOr<std::unique_ptr<NpyWriter>> NpyWriter::Create(const std::string& path,
                                                             const NpyOptions& options) {
  // Renaming over a device or a pipe would replace it.
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::status(path, error);
  if (std::filesystem::exists(found) && !std::filesystem::is_regular_file(found)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": it is there already and not a regular file"));
  }
  const std::string partial = absl::StrCat(path, ".", getpid(), ".partial");
  std::FILE* file = std::fopen(partial.c_str(), "wb");
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  std::unique_ptr<NpyWriter> writer(new NpyWriter(path, options, file));
  if (std::fwrite(writer->Header().data(), 1, kHeaderBytes, file) != kHeaderBytes) {
    return writer->Error();
  }
  return writer;
}

NpyWriter::NpyWriter(std::string path, const NpyOptions& options, std::FILE* file)
    : path_(std::move(path)),
      partial_path_(absl::StrCat(path_, ".", getpid(), ".partial")),
      options_(options),
      file_(file) {}

NpyWriter::~NpyWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  unlink(partial_path_.c_str());
}

absl::Status NpyWriter::Error() const {
  // A full disk is the machine's fault, not the command line's.
  return absl::InternalError(absl::StrCat("cannot write ", path_, ": ", std::strerror(errno)));
}

std::string NpyWriter::Header() const {
  const std::string shape = options_.shape == NpyShape::kVector
                                ? absl::StrCat(options_.columns, ",")
                                : absl::StrCat(rows_, ", ", options_.columns);
  std::string text =
      absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (", shape, "), }");
  constexpr size_t kPreamble = 10;
  text.resize(kHeaderBytes - kPreamble - 1, ' ');
  text.push_back('\n');
  std::string header("\x93NUMPY\x01\x00", 8);
  header.push_back(static_cast<char>(text.size() & 0xff));
  header.push_back(static_cast<char>(text.size() >> 8));
  return header + text;
}

absl::Status NpyWriter::Append(absl::Span<const float> row) {
  CHECK_EQ(static_cast<int64_t>(row.size()), options_.columns);
  CHECK(options_.shape == NpyShape::kRows || rows_ == 0);
  if (std::fwrite(row.data(), sizeof(float), row.size(), file_) != row.size()) return Error();
  ++rows_;
  return absl::OkStatus();
}

absl::Status NpyWriter::Finish() {
  CHECK(options_.shape == NpyShape::kRows || rows_ == 1);
  const std::string header = Header();
  const bool written = std::fseek(file_, 0, SEEK_SET) == 0 &&
                       std::fwrite(header.data(), 1, header.size(), file_) == header.size();
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (written && closed && std::rename(partial_path_.c_str(), path_.c_str()) == 0) {
    return absl::OkStatus();
  }
  const absl::Status error = Error();
  unlink(partial_path_.c_str());
  return error;
}

}  // namespace tidepool::service
