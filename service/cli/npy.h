// Writes float32 arrays as NumPy .npy files, row by row.
//
//   ASSIGN_OR_RETURN(auto npy, NpyWriter::Create("logits.npy", {.columns = vocab}));
//   RETURN_IF_ERROR(npy->Append(row));
//   RETURN_IF_ERROR(npy->Finish());
//
// Format: version 1.0, little-endian, C order (numpy.lib.format).
#ifndef TIDEPOOL_SERVICE_CLI_NPY_H_
#define TIDEPOOL_SERVICE_CLI_NPY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/atomic_file.h"

namespace tidepool::service {

enum class NpyShape : uint8_t {
  kVector,  // [columns]: one row
  kRows,    // [rows, columns]
};

struct NpyOptions {
  int64_t columns = 0;
  NpyShape shape = NpyShape::kRows;
};

// Thread-compatible. The file appears under its name when Finish returns. Until then, and after a
// failure, an existing file of that name is unchanged.
class NpyWriter {
 public:
  // Replaces an existing file. Errors are those of base::AtomicFile.
  static absl::StatusOr<std::unique_ptr<NpyWriter>> Create(const std::string& path,
                                                           const NpyOptions& options);

  // Requires: row.size() == columns. With kVector, only one row is allowed.
  absl::Status Append(absl::Span<const float> row);
  // Completes the file. Append must not be called after Finish.
  absl::Status Finish();

 private:
  explicit NpyWriter(const NpyOptions& options) : options_(options) {}
  // Returns the first 128 bytes of the file. The data follows them.
  std::string Header() const;

  const NpyOptions options_;
  std::unique_ptr<base::AtomicFile> file_;
  int64_t rows_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_NPY_H_
