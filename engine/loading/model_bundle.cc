#include "engine/loading/model_bundle.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/content_digest.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_disk.h"
#include "engine/kv/kv_disk_format.h"
#include "engine/loading/available_cpus.h"
#include "engine/model/numerics_version.h"
#include "engine/tokenizer/load_tokenizer.h"
#include "kernels/backends/make_backend.h"
#include "kernels/base/status_macros.h"
#include "moe/offload_control.h"
#include "moe/tiered_experts.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::Precision;

constexpr int kMaxThreads = 1024;

// With chunks of this number of rows, most prompts read each missing expert only once. Twice the
// number would need 60 MB more of workspace for Qwen3-30B, and would save a second read only for
// longer prompts.
constexpr int64_t kPrefillRowsOverMemory = 2048;

std::string NumericsId(Precision precision, DType kv_dtype) {
  return absl::StrCat("v", kNumericsVersion, "-cpu-",
                      precision == Precision::kExact ? "exact" : "fast", "-kv_",
                      absl::AsciiStrToLower(DTypeName(kv_dtype)), "-ranks_1");
}

LoadProgress InStage(const StageProgress& progress, LoadStage stage) {
  if (!progress) return nullptr;
  return [&progress, stage](double fraction) { progress(stage, fraction); };
}

// Returns the bytes of KV in `limits`. This includes limits that are given in tokens, and the
// memory for the disk. Returns the errors of PlanKvDisk.
absl::StatusOr<int64_t> KvBytes(const MemoryLimits& limits, const ModelConfig& config,
                                DType kv_dtype) {
  const std::vector<KvSpec> specs = KvSpecsOf(config, kv_dtype);
  int64_t bytes = limits.kv_bytes + limits.kv_tokens * KvBytesPerToken(config, kv_dtype);
  // The tokens are those of one sequence in a ContiguousKv, which has two recurrent states.
  if (limits.kv_tokens > 0) bytes += 2 * KvCostOf(specs).state_bytes;
  if (limits.kv_disk_bytes == 0) return bytes;
  const int64_t block_bytes = KvBlockBytes(specs);
  ASSIGN_OR_RETURN(const KvDiskLayout disk, PlanKvDisk(limits.kv_disk_bytes, block_bytes));
  return bytes + KvDiskMemoryBytes(disk);
}

absl::Status Digest(const Checkpoint& file, const LoadOptions& options, ModelBundle* bundle) {
  bundle->digest = file.SampledDigest();
  ASSIGN_OR_RETURN(
      ContentDigest content,
      DigestContent(file, {.threads = bundle->threads,
                           .cache_dir = options.experts.cache_dir,
                           .progress = InStage(options.progress, LoadStage::kHashing)}));
  bundle->content_digest = std::move(content.hex);
  if (options.quantize_to.has_value()) {
    for (std::string* digest : {&bundle->digest, &bundle->content_digest}) {
      *digest = QuantizedDigest(*digest, *options.quantize_to);
    }
  }
  bundle->digest_recorded = std::move(content.recorded);
  return absl::OkStatus();
}

absl::StatusOr<ChatTemplate> ParseChatTemplate(const ModelBundle& bundle) {
  const std::string& source = bundle.tokenizer->spec().chat_template;
  if (source.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("model ", bundle.name, " has no chat template: send text or token ids"));
  }
  return ChatTemplate::Parse(source);
}

}  // namespace

absl::Status LoadOptions::Validate() const {
  if (threads < 0 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", threads, ", expected 1 to ", kMaxThreads,
                     ", or 0 for all CPUs that this process may use"));
  }
  const bool resident =
      experts.memory.kind == ExpertMemoryKind::kAuto ||
      (experts.memory.kind == ExpertMemoryKind::kShare && experts.memory.share >= 1);
  if (device == kernels::Device::kCuda && !resident) {
    return absl::UnimplementedError(
        "--expert-memory is not supported yet with --device cuda, because all experts are in the "
        "memory of the GPU: remove --expert-memory, or use --device cpu");
  }
  if (!kv_dtype.has_value()) return absl::OkStatus();
  if (!kernels::IsKvType(*kv_dtype, 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the KV type is ", DTypeName(*kv_dtype), ", expected F32, F16, BF16 or Q8_0"));
  }
  if (precision == Precision::kExact && *kv_dtype != DType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("the KV type is ", DTypeName(*kv_dtype), ", expected F32 in exact mode"));
  }
  return absl::OkStatus();
}

int64_t ModelBundle::prefill_rows() const {
  const moe::OffloadControl* experts = model->offload_control();
  if (experts == nullptr) return kPrefillRows;
  const moe::OffloadSettings settings = experts->Settings();
  return settings.slots < settings.experts ? offload_prefill_rows : kPrefillRows;
}

absl::StatusOr<std::unique_ptr<ModelBundle>> LoadModel(const std::string& path,
                                                       const LoadOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  auto bundle = std::make_unique<ModelBundle>();
  bundle->threads = options.threads > 0 ? options.threads : AvailableCpus();
  const bool exact = options.precision == Precision::kExact;
  bundle->kv_dtype = options.kv_dtype.value_or(exact ? DType::kF32 : DType::kF16);
  bundle->numerics_id = NumericsId(options.precision, bundle->kv_dtype);

  // The cheap checks are first, so that an unusable file is refused before its weights are read.
  ASSIGN_OR_RETURN(Checkpoint file, OpenCheckpoint(path));
  ASSIGN_OR_RETURN(bundle->config, ModelConfig::Parse(file));
  if (!bundle->config.CanStoreKv(bundle->kv_dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV of type ", DTypeName(bundle->kv_dtype),
                     " needs a head size that is a multiple of 32; ", path, " has heads of size ",
                     bundle->config.attention_layer().head_dim, ": use f16 or bf16"));
  }
  bundle->name = bundle->config.name;
  ASSIGN_OR_RETURN(bundle->tokenizer, LoadTokenizer(file));
  bundle->chat_template = ParseChatTemplate(*bundle);
  RETURN_IF_ERROR(Digest(file, options, bundle.get()));
  ASSIGN_OR_RETURN(bundle->backend, kernels::MakeBackend({.device = options.device,
                                                          .precision = options.precision,
                                                          .threads = bundle->threads,
                                                          .isa = options.isa}));
  ASSIGN_OR_RETURN(bundle->weights,
                   WeightStore::Create(std::move(file), {.threads = bundle->threads,
                                                         .quantize_to = options.quantize_to,
                                                         .backend = bundle->backend.get()}));
  ExpertOptions experts = options.experts;
  ASSIGN_OR_RETURN(experts.limits.kv_bytes,
                   KvBytes(options.experts.limits, bundle->config, bundle->kv_dtype));
  std::unique_ptr<moe::TieredExperts> tiered;
  if (options.device == kernels::Device::kCpu) {
    ASSIGN_OR_RETURN(tiered, MakeTieredExperts(
                                 bundle->config, bundle->weights.get(), experts,
                                 {.digest = bundle->content_digest, .progress = options.progress}));
  }
  moe::TieredExperts* const offloaded = tiered.get();  // the model will own it
  ASSIGN_OR_RETURN(
      std::unique_ptr<moe::TraceWriter> trace,
      OpenTrace(bundle->config, bundle->name, bundle->weights.get(), options.experts.trace_path));
  ASSIGN_OR_RETURN(bundle->model, TransformerModel::Create(
                                      bundle->config, bundle->weights.get(), bundle->backend.get(),
                                      {.kv_dtype = bundle->kv_dtype,
                                       .progress = InStage(options.progress, LoadStage::kLoading),
                                       .experts = std::move(tiered),
                                       .trace = std::move(trace)}));
  if (offloaded != nullptr) {
    bundle->offload_prefill_rows = kPrefillRowsOverMemory;
    offloaded->LoadResidents(InStage(options.progress, LoadStage::kReadingExperts));
  }
  bundle->weights->EndThreads();
  bundle->weight_bytes = bundle->weights->weight_bytes();
  return bundle;
}

}  // namespace tidepool::engine
