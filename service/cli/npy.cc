#include "service/cli/npy.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are written in memory order");

// The header has room for any numbers of rows and columns. Its size aligns the data after it, as
// the format requires.
constexpr int64_t kHeaderBytes = 128;

}  // namespace

absl::StatusOr<std::unique_ptr<NpyWriter>> NpyWriter::Create(const std::string& path,
                                                             const NpyOptions& options) {
  std::unique_ptr<NpyWriter> writer(new NpyWriter(options));
  ASSIGN_OR_RETURN(writer->file_,
                   base::AtomicFile::Create(path, {.existing = base::ExistingFile::kReplace}));
  // This header is a placeholder. Finish writes it again when the number of rows is known.
  RETURN_IF_ERROR(writer->file_->Append(writer->Header().data(), kHeaderBytes));
  return writer;
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
  RETURN_IF_ERROR(file_->Append(row.data(), static_cast<int64_t>(row.size() * sizeof(float))));
  ++rows_;
  return absl::OkStatus();
}

absl::Status NpyWriter::Finish() {
  CHECK(options_.shape == NpyShape::kRows || rows_ == 1);
  RETURN_IF_ERROR(file_->WriteAt(Header().data(), kHeaderBytes, 0));
  return file_->Finish();
}

}  // namespace tidepool::service
