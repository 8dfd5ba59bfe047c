// Writes float32 arrays as NumPy .npy files, row by row.
//
//   ASSIGN_OR_RETURN(auto npy, NpyWriter::Create("logits.npy", {.columns = vocab, .shape =
//   NpyShape::kRows})); RETURN_IF_ERROR(npy->Append(row)); RETURN_IF_ERROR(npy->Finish());
//
// Format: version 1.0, little-endian, C order (numpy.lib.format).
#ifndef TIDEPOOL_SERVICE_CLI_NPY_H_
#define TIDEPOOL_SERVICE_CLI_NPY_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tidepool::service {

enum class NpyShape : uint8_t {
  kVector,  // [columns]: one row
  kRows,    // [rows, columns]
};

struct NpyOptions {
  int64_t columns = 0;
  NpyShape shape = NpyShape::kRows;
};

// Thread-compatible. The file appears under its name when Finish has returned; before, and after a
// failure, nothing of that name is touched.
class NpyWriter {
 public:
  static absl::StatusOr<std::unique_ptr<NpyWriter>> Create(const std::string& path,
                                                           const NpyOptions& options);
  ~NpyWriter();

  // Requires: row.size() == columns; one row only of a vector.
  absl::Status Append(absl::Span<const float> row);
  // Requires: no rows follow.
  absl::Status Finish();

 private:
  NpyWriter(std::string path, const NpyOptions& options, std::FILE* file);
  absl::Status Error() const;
  // The 128 bytes in front of the data.
  std::string Header() const;

  const std::string path_;
  const std::string partial_path_;
  const NpyOptions options_;
  std::FILE* file_;
  int64_t rows_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_NPY_H_
