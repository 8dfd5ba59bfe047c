#include "engine/loading/tiered_model.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/loading/expert_layouts.h"
#include "engine/model/transformer_weights.h"
#include "kernels/base/status_macros.h"
#include "moe/device/device_experts.h"
#include "moe/tiered_experts.h"
#include "moe/trace/trace.h"

namespace tidepool::engine {
namespace {

// Returns the function that rebuilds damaged records from the checkpoint. It works as long as the
// bytes of the checkpoint do not change.
auto Rebuilder(const ModelConfig& config, const PackContents& contents, WeightStore* store) {
  return [config, contents, layers = MoeLayers(config), store](moe::ExpertRef expert,
                                                               std::byte* record) {
    const ExpertId id = {layers[expert.layer], expert.expert};
    RETURN_IF_ERROR(store->file().MapInHeaders());
    RETURN_IF_ERROR(CheckExpertReadable(config, id, store));
    const absl::Status packed =
        PackExpert(config, id, store, contents.layouts[expert.layer][expert.expert], record);
    store->EndThreads();
    return packed;
  };
}

// Returns the records of a pack. Writes the pack if it is missing or unusable.
absl::StatusOr<moe::ExpertRecords> UsePack(const ModelConfig& config, const PackContents& contents,
                                           const PackRequest& request) {
  if (request.existing == ExistingPack::kUse) {
    absl::StatusOr<moe::ExpertRecords> found = ReadPack(request.path, contents);
    // If the digest cannot be written, the pack is used unchanged.
    if (found.ok()) RenewPackDigest(request.path, contents).IgnoreError();
    if (found.ok()) return found;
    if (absl::IsPermissionDenied(found.status())) {
      return absl::PermissionDeniedError(absl::StrCat("cannot read ", request.path));
    }
    if (request.note && !absl::IsNotFound(found.status())) {
      request.note(absl::StrCat("cannot use the pack ", request.path, ": ",
                                found.status().message(), "; writing it again from ",
                                request.store->file().path()));
    }
  }
  const std::vector<int> layers = MoeLayers(config);
  const auto fill = [&](int layer, int expert, std::byte* record) {
    return PackExpert(config, {layers[layer], expert}, request.store,
                      contents.layouts[layer][expert], record);
  };
  const absl::Status made = WritePack(request.path, contents, fill, [&](double fraction) {
    if (request.progress) request.progress(LoadStage::kPacking, fraction);
  });
  // Another directory helps if the model's directory is read-only or its disk is full.
  if (absl::IsPermissionDenied(made) || absl::IsFailedPrecondition(made) ||
      absl::IsResourceExhausted(made)) {
    return absl::Status(
        made.code(),
        absl::StrCat(made.message(), "; choose a folder for packs with --cache-dir DIR"));
  }
  RETURN_IF_ERROR(made);
  absl::StatusOr<moe::ExpertRecords> written = ReadPack(request.path, contents);
  if (written.ok()) return written;
  return absl::DataLossError(
      absl::StrCat(request.path, ": was just written, but ", written.status().message()));
}

ExpertTiers TiersOf(std::unique_ptr<moe::TieredExperts> host) {
  const auto load = [experts = host.get()](const LoadProgress& progress) {
    experts->LoadResidents(progress);
    return absl::OkStatus();
  };
  return {std::move(host), load};
}

ExpertTiers TiersOf(std::unique_ptr<moe::DeviceExperts> device) {
  const auto load = [experts = device.get()](const LoadProgress& progress) {
    return experts->LoadResidents(progress);
  };
  return {std::move(device), load};
}

}  // namespace

std::string PackPath(const Checkpoint& file, const std::string& cache_dir,
                     std::optional<GgmlType> quantize_to) {
  const std::string suffix = quantize_to.has_value()
                                 ? absl::StrCat(".", GgmlTypeName(*quantize_to), ".tidepack")
                                 : ".tidepack";
  if (cache_dir.empty()) return file.SidecarPath(suffix);
  return std::filesystem::path(cache_dir) / absl::StrCat(file.SampledDigest(), suffix);
}

absl::StatusOr<moe::ExpertRecords> OpenPack(const ModelConfig& config, const PackRequest& request) {
  ASSIGN_OR_RETURN(const PackContents contents,
                   PackContentsOf(config, request.digest, request.store));
  return UsePack(config, contents, request);
}

absl::StatusOr<std::unique_ptr<moe::TraceWriter>> OpenTrace(const ModelConfig& config,
                                                            const std::string& name,
                                                            WeightStore* store,
                                                            const std::string& path) {
  if (path.empty() || config.moe_layers() == 0) return nullptr;
  // Only the layouts of the experts are needed.
  ASSIGN_OR_RETURN(const PackContents contents, PackContentsOf(config, /*digest=*/"", store));
  moe::TraceHeader header = {.model = name,
                             .layers = static_cast<int>(contents.layouts.size()),
                             .experts = config.moe.experts,
                             .top_k = config.moe.experts_used};
  for (const auto& layer : contents.layouts) {
    int64_t largest = 0;
    for (const moe::ExpertLayout& layout : layer) largest = std::max(largest, layout.bytes());
    header.expert_bytes.push_back(largest);
  }
  return moe::TraceWriter::Create(path, header);
}

absl::StatusOr<ExpertTiers> MakeExpertTiers(const ModelConfig& config, WeightStore* store,
                                            const ExpertOptions& options,
                                            const TierRequest& request) {
  const MemoryPlan& plan = *request.plan;
  if (!plan.offloads()) return ExpertTiers();
  ASSIGN_OR_RETURN(const PackContents contents, PackContentsOf(config, request.digest, store));
  moe::PolicyOptions policy = options.policy;
  if (!options.profile_path.empty()) {
    ASSIGN_OR_RETURN(policy.profile, moe::ReadProfile(options.profile_path,
                                                      static_cast<int>(contents.layouts.size()),
                                                      config.moe.experts));
  }
  const std::string path = PackPath(store->file(), options.cache_dir, store->quantize_to());
  ASSIGN_OR_RETURN(
      moe::ExpertRecords records,
      UsePack(config, contents,
              {.store = store, .path = path, .progress = request.progress, .note = options.note}));
  ASSIGN_OR_RETURN(std::unique_ptr<moe::RecordReader> reader,
                   moe::OpenRecordReader(path, {.kind = options.reader, .note = options.note}));
  ASSIGN_OR_RETURN(
      std::unique_ptr<moe::TieredExperts> host,
      moe::TieredExperts::Create(
          std::move(records), std::move(reader),
          {.top_k = config.moe.experts_used,
           .slots = plan.on_device ? plan.host_slots : plan.slots,
           .staging = options.staging,
           .policy = policy,
           .prefetch = options.prefetch,
           .layer_numbers = MoeLayers(config),
           .repair = {.rebuild = Rebuilder(config, contents, store), .note = options.note},
           .pin = plan.on_device ? request.backend : nullptr}));
  if (!plan.on_device) return TiersOf(std::move(host));
  ASSIGN_OR_RETURN(std::unique_ptr<moe::DeviceExperts> device,
                   moe::DeviceExperts::Create(request.backend, std::move(host),
                                              {.top_k = config.moe.experts_used,
                                               .slots = plan.slots,
                                               .staging = options.staging,
                                               .policy = std::move(policy),
                                               .prefetch = options.prefetch,
                                               .layer_numbers = MoeLayers(config)}));
  return TiersOf(std::move(device));
}

}  // namespace tidepool::engine
