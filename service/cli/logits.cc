// logits: writes the logits after given tokens as a .npy file.
#include "engine/evaluation/logits.h"

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/cli/commands.h"
#include "service/cli/load.h"
#include "service/cli/npy.h"

namespace tidepool::service {
namespace {

// Thread-compatible. Writes one .npy file for each part of the model's graph. The rows are in the
// order of positions.
class PartDump {
 public:
  explicit PartDump(std::string folder) : folder_(std::move(folder)) {}

  absl::Status MakeFolder() {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (!error) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make the folder ", folder_, ": ", error.message()));
  }

  absl::Status Add(absl::string_view name, kernels::ConstMatrixView rows) {
    std::unique_ptr<NpyWriter>& file = files_[std::string(name)];
    if (file == nullptr) {
      ASSIGN_OR_RETURN(file, NpyWriter::Create(absl::StrCat(folder_, "/", name, ".npy"),
                                               {.columns = rows.cols}));
    }
    for (int64_t row = 0; row < rows.rows; ++row) {
      RETURN_IF_ERROR(file->Append(absl::MakeConstSpan(rows.Row(row), rows.cols)));
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    for (auto& [name, file] : files_) RETURN_IF_ERROR(file->Finish());
    return absl::OkStatus();
  }

  size_t files() const { return files_.size(); }

 private:
  const std::string folder_;
  std::map<std::string, std::unique_ptr<NpyWriter>> files_;
};

}  // namespace

absl::Status RunLogits(const Config& config, Console* console) {
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::ModelBundle> bundle, LoadBundle(config, console));
  const int64_t vocab = bundle->config.vocab_size;
  std::unique_ptr<NpyWriter> out;
  if (!config.output.file.empty()) {
    const NpyShape shape = config.logits.all_positions ? NpyShape::kRows : NpyShape::kVector;
    ASSIGN_OR_RETURN(out,
                     NpyWriter::Create(config.output.file, {.columns = vocab, .shape = shape}));
  }
  PartDump dump(config.logits.dump);
  engine::LogitsOptions options;
  options.chunk_rows = config.logits.chunk;
  options.rows = config.logits.all_positions ? engine::LogitRows::kAll : engine::LogitRows::kLast;
  if (!config.logits.dump.empty()) {
    RETURN_IF_ERROR(dump.MakeFolder());
    options.parts = [&](absl::string_view name, int64_t, kernels::ConstMatrixView rows) {
      return dump.Add(name, rows);
    };
  }
  absl::Status sound;
  RETURN_IF_ERROR(engine::ComputeLogits(bundle->model.get(), config.input.tokens, options,
                                        [&](int64_t position, absl::Span<const float> logits) {
                                          sound.Update(engine::CheckFinite(position, logits));
                                          return out == nullptr ? absl::OkStatus()
                                                                : out->Append(logits);
                                        }));
  RETURN_IF_ERROR(bundle->model->Finish());
  if (out != nullptr) RETURN_IF_ERROR(out->Finish());
  RETURN_IF_ERROR(dump.Finish());
  if (config.output.format == OutputFormat::kJson) {
    console->PrintJson({{"out", config.output.file},
                        {"positions", config.logits.all_positions ? config.input.tokens.size() : 1},
                        {"vocab_size", vocab},
                        {"dump", config.logits.dump},
                        {"dump_files", dump.files()}});
  }
  RETURN_IF_ERROR(console->out_status());
  // Report NaNs and infinities last, because the written files help to find their cause.
  return sound.ok() ? sound
                    : absl::InternalError(absl::StrCat(config.model.path, ": ", sound.message()));
}

}  // namespace tidepool::service
