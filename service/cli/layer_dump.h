// LayerDump: the directory of `logits --dump`, with the output of each part of a forward pass.
//
//   ASSIGN_OR_RETURN(const std::unique_ptr<LayerDump> dump, LayerDump::Create("dump"));
//   RETURN_IF_ERROR(dump->Append("layer.0", rows));
//   RETURN_IF_ERROR(dump->Finish());
//
// One line of Python reads a file: numpy.load("dump/layer.0.npy").
#ifndef TIDEPOOL_SERVICE_CLI_LAYER_DUMP_H_
#define TIDEPOOL_SERVICE_CLI_LAYER_DUMP_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/tensor.h"
#include "service/cli/npy.h"

namespace tidepool::service {

// Thread-compatible. PART.npy is float32 [rows, cols].
class LayerDump {
 public:
  // Creates the directory. INVALID_ARGUMENT, with the path, if `folder` is not a directory, or if
  // it already has files, because old and new files could be confused. Other errors are those of
  // base::AtomicFile if files cannot be written there.
  static absl::StatusOr<std::unique_ptr<LayerDump>> Create(const std::string& folder);

  // Appends rows to the file of `part`. Errors name the file, such as RESOURCE_EXHAUSTED if the
  // disk is full.
  absl::Status Append(absl::string_view part, kernels::ConstMatrixView rows);

  // Completes the files, which then appear under their names. If an Append has failed, no file
  // appears.
  absl::Status Finish();

  size_t files() const { return files_.size(); }

 private:
  explicit LayerDump(std::string folder) : folder_(std::move(folder)) {}

  absl::Status AppendRows(absl::string_view part, kernels::ConstMatrixView rows);

  const std::string folder_;
  std::map<std::string, std::unique_ptr<NpyWriter>> files_;  // by part
  bool failed_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_LAYER_DUMP_H_
