// pack: writes a model's experts to a pack file, in the layout for reads on demand.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/checkpoint/content_digest.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/loading/available_cpus.h"
#include "engine/loading/tiered_model.h"
#include "engine/model/model_config.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"
#include "service/cli/commands.h"
#include "service/cli/load.h"

namespace tidepool::service {
namespace {

// Digest of every byte of the checkpoint, and of the type that its weights are quantised to.
absl::StatusOr<std::string> DigestOf(const engine::WeightStore& store, const Config& config,
                                     const engine::StageProgress& show) {
  const int threads = config.model.threads > 0 ? config.model.threads : engine::AvailableCpus();
  ASSIGN_OR_RETURN(engine::ContentDigest digest,
                   engine::DigestContent(store.file(), {.threads = threads,
                                                        .cache_dir = config.model.experts.cache_dir,
                                                        .progress = [&](double fraction) {
                                                          show(engine::LoadStage::kHashing,
                                                               fraction);
                                                        }}));
  if (!store.quantize_to().has_value()) return std::move(digest.hex);
  return engine::QuantizedDigest(digest.hex, *store.quantize_to());
}

}  // namespace

absl::Status RunPack(const Config& config, Console* console) {
  ASSIGN_OR_RETURN(engine::Checkpoint file, engine::OpenCheckpoint(config.model.path));
  ASSIGN_OR_RETURN(const engine::ModelConfig model, engine::ModelConfig::Parse(file));
  if (model.moe_layers() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.model.path, " has no experts: there is nothing to pack"));
  }
  const std::string path =
      engine::PackPath(file, config.model.experts.cache_dir, config.model.quantize_to);
  const int threads = config.model.threads > 0 ? config.model.threads : engine::AvailableCpus();
  ASSIGN_OR_RETURN(
      const std::unique_ptr<engine::WeightStore> store,
      engine::WeightStore::Create(std::move(file),
                                  {.threads = threads, .quantize_to = config.model.quantize_to}));
  bool written = false;
  absl::StatusOr<moe::ExpertRecords> records;
  {
    LoadProgressLine line(config, console);
    const engine::StageProgress show = line.callback();
    ASSIGN_OR_RETURN(const std::string digest, DigestOf(*store, config, show));
    records =
        engine::OpenPack(model, {.store = store.get(),
                                 .digest = digest,
                                 .path = path,
                                 .existing = config.output.force ? engine::ExistingPack::kReplace
                                                                 : engine::ExistingPack::kUse,
                                 .progress =
                                     [&](engine::LoadStage stage, double fraction) {
                                       written = true;
                                       show(stage, fraction);
                                     },
                                 .note = ConsoleNote(console)});
  }
  RETURN_IF_ERROR(records.status());
  const int64_t layers = static_cast<int64_t>(records->layers.size());
  if (config.output.format == OutputFormat::kJson) {
    console->PrintJson({{"model", config.model.path},
                        {"out", path},
                        {"written", written},
                        {"layers", layers},
                        {"experts", model.moe.experts},
                        {"record_bytes", records->largest_bytes()},
                        {"expert_bytes", records->total_bytes()}});
  } else {
    console->Print(absl::StrFormat("%s %s: %d layers of %d experts, %s; a record is %s\n", path,
                                   written ? "written" : "already exists", layers,
                                   model.moe.experts,
                                   FormatBytes(static_cast<double>(records->total_bytes())),
                                   FormatBytes(static_cast<double>(records->largest_bytes()))));
  }
  return console->out_status();
}

}  // namespace tidepool::service
