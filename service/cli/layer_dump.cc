#include "service/cli/layer_dump.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kernels/base/atomic_file.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {

absl::StatusOr<std::unique_ptr<LayerDump>> LayerDump::Create(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const bool empty = !error && std::filesystem::is_empty(folder, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot create the directory ", folder, ": ", error.message()));
  }
  if (!empty) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the directory ", folder, " has files: --dump needs a new or an empty directory"));
  }
  // If files cannot be written, fail now and not after the model was loaded. This leaves no file.
  RETURN_IF_ERROR(base::AtomicFile::Create(absl::StrCat(folder, "/embedding.npy"), {}).status());
  return std::unique_ptr<LayerDump>(new LayerDump(folder));
}

absl::Status LayerDump::Append(absl::string_view part, kernels::ConstMatrixView rows) {
  const absl::Status status = AppendRows(part, rows);
  failed_ = failed_ || !status.ok();
  return status;
}

absl::Status LayerDump::AppendRows(absl::string_view part, kernels::ConstMatrixView rows) {
  std::unique_ptr<NpyWriter>& file = files_[std::string(part)];
  if (file == nullptr) {
    ASSIGN_OR_RETURN(
        file, NpyWriter::Create(absl::StrCat(folder_, "/", part, ".npy"), {.columns = rows.cols}));
  }
  for (int64_t row = 0; row < rows.rows; ++row) {
    RETURN_IF_ERROR(file->Append(absl::MakeConstSpan(rows.Row(row), rows.cols)));
  }
  return absl::OkStatus();
}

absl::Status LayerDump::Finish() {
  if (failed_) return absl::OkStatus();
  for (const auto& [part, file] : files_) RETURN_IF_ERROR(file->Finish());
  return absl::OkStatus();
}

}  // namespace tidepool::service
