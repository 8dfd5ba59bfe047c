// logits: writes the logits after given tokens, and on request each layer's output, as .npy files.
#include "engine/evaluation/logits.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/cli/commands.h"
#include "service/cli/layer_dump.h"
#include "service/cli/load.h"
#include "service/cli/npy.h"

namespace tidepool::service {
namespace {

// Adds to an error that the outputs before it were written.
absl::Status WithDump(const absl::Status& error, const LayerDump& dump, const std::string& folder) {
  if (dump.files() == 0) return error;
  return {error.code(),
          absl::StrCat(error.message(), "; the outputs of the layers up to there are in ", folder)};
}

}  // namespace

absl::Status RunLogits(const Config& config, Console* console) {
  const std::string& folder = config.logits.dump;
  std::unique_ptr<LayerDump> dump;
  if (!folder.empty()) {
    ASSIGN_OR_RETURN(dump, LayerDump::Create(folder));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::ModelBundle> bundle, LoadBundle(config, console));
  const int64_t vocab = bundle->config.vocab_size;
  std::unique_ptr<NpyWriter> out;
  if (!config.output.file.empty()) {
    const NpyShape shape = config.logits.all_positions ? NpyShape::kRows : NpyShape::kVector;
    ASSIGN_OR_RETURN(out,
                     NpyWriter::Create(config.output.file, {.columns = vocab, .shape = shape}));
  }
  engine::LogitsOptions options;
  options.chunk_rows = config.logits.chunk;
  options.rows = config.logits.all_positions ? engine::LogitRows::kAll : engine::LogitRows::kLast;
  absl::Status dumped;
  if (dump != nullptr) {
    options.parts = [&](absl::string_view name, int64_t, kernels::ConstMatrixView rows) {
      dumped = dump->Append(name, rows);
      return dumped;
    };
  }
  absl::Status sound;
  const absl::Status computed =
      engine::ComputeLogits(bundle->model.get(), config.input.tokens, options,
                            [&](int64_t position, absl::Span<const float> logits) {
                              sound.Update(engine::CheckFinite(position, logits));
                              return out == nullptr ? absl::OkStatus() : out->Append(logits);
                            });
  RETURN_IF_ERROR(dumped);
  // Finish the files even after an error of the model, because the files help to find the cause.
  const absl::Status finished = dump == nullptr ? absl::OkStatus() : dump->Finish();
  if (!computed.ok()) {
    return dump == nullptr || !finished.ok() ? computed : WithDump(computed, *dump, folder);
  }
  RETURN_IF_ERROR(finished);
  RETURN_IF_ERROR(bundle->model->Finish());
  if (out != nullptr) RETURN_IF_ERROR(out->Finish());
  if (config.output.format == OutputFormat::kJson) {
    console->PrintJson({{"out", config.output.file},
                        {"positions", config.logits.all_positions ? config.input.tokens.size() : 1},
                        {"vocab_size", vocab},
                        {"dump", folder},
                        {"dump_files", dump == nullptr ? 0 : dump->files()}});
  }
  RETURN_IF_ERROR(console->out_status());
  // Report NaNs and infinities last, because the written files help to find their cause.
  return sound.ok() ? sound
                    : absl::InternalError(absl::StrCat(config.model.path, ": ", sound.message()));
}

}  // namespace tidepool::service
