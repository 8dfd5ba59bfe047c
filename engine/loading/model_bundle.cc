#include "engine/loading/model_bundle.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/content_digest.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/loading/available_cpus.h"
#include "engine/model/numerics_version.h"
#include "engine/tokenizer/load_tokenizer.h"
#include "kernels/base/status_macros.h"
#include "moe/offload_control.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::Precision;

constexpr int kMaxThreads = 1024;

std::string NumericsId(Precision precision, DType kv_dtype) {
  return absl::StrCat("v", kNumericsVersion, "-cpu-",
                      precision == Precision::kExact ? "exact" : "fast", "-kv_",
                      absl::AsciiStrToLower(DTypeName(kv_dtype)), "-ranks_1");
}

LoadProgress InStage(const StageProgress& progress, LoadStage stage) {
  if (!progress) return nullptr;
  return [&progress, stage](double fraction) { progress(stage, fraction); };
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

// Plans the memory. Moves `file` into a temporary WeightStore, and back before it returns.
absl::StatusOr<MemoryPlan> Plan(const LoadOptions& options, const ModelBundle& bundle,
                                Checkpoint* file) {
  ASSIGN_OR_RETURN(const std::unique_ptr<WeightStore> shapes,
                   WeightStore::Create(std::move(*file), {.threads = bundle.threads,
                                                          .contents = WeightContents::kShapesOnly,
                                                          .quantize_to = options.quantize_to}));
  absl::StatusOr<MemoryPlan> plan = PlanMemory(bundle.config, shapes.get(),
                                               {.experts = &options.experts,
                                                .kv_dtype = bundle.kv_dtype,
                                                .max_sequences = options.max_sequences,
                                                .backend = bundle.backend.get()});
  *file = std::move(*shapes).TakeFile();
  return plan;
}

// Opens the checkpoint, creates the backend and plans the memory. The cheap checks are first, so
// that an unusable file is refused before its weights are read.
absl::StatusOr<Checkpoint> Begin(const std::string& path, const LoadOptions& options,
                                 ModelBundle* bundle) {
  RETURN_IF_ERROR(options.Validate());
  bundle->threads = options.threads > 0 ? options.threads : AvailableCpus();
  const bool exact = options.precision == Precision::kExact;
  bundle->kv_dtype = options.kv_dtype.value_or(exact ? DType::kF32 : DType::kF16);
  bundle->numerics_id = NumericsId(options.precision, bundle->kv_dtype);
  ASSIGN_OR_RETURN(Checkpoint file, OpenCheckpoint(path));
  ASSIGN_OR_RETURN(bundle->config, ModelConfig::Parse(file));
  if (!bundle->config.CanStoreKv(bundle->kv_dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV of type ", DTypeName(bundle->kv_dtype),
                     " needs a head size that is a multiple of 32; ", path, " has heads of size ",
                     bundle->config.attention_layer().head_dim, ": use f16 or bf16"));
  }
  ASSIGN_OR_RETURN(bundle->backend, options.make_backend({.device = options.device,
                                                          .precision = options.precision,
                                                          .threads = bundle->threads,
                                                          .isa = options.isa}));
  ASSIGN_OR_RETURN(bundle->plan, Plan(options, *bundle, &file));
  return file;
}

// Loads the weights and creates the model.
absl::Status LoadWeights(const LoadOptions& options, ModelBundle* bundle) {
  for (const std::string& raised : RaisedShareNotes(options.experts, bundle->plan)) {
    if (options.experts.note) options.experts.note(raised);
  }
  ASSIGN_OR_RETURN(ExpertTiers tiers,
                   MakeExpertTiers(bundle->config, bundle->weights.get(), options.experts,
                                   {.plan = &bundle->plan,
                                    .digest = bundle->content_digest,
                                    .progress = options.progress,
                                    .backend = bundle->backend.get()}));
  const bool offloads = tiers.source != nullptr;
  if (offloads && bundle->plan.on_device) {
    ASSIGN_OR_RETURN(bundle->host_backend, options.make_backend({.device = kernels::Device::kCpu,
                                                                 .precision = options.precision,
                                                                 .threads = bundle->threads,
                                                                 .isa = options.isa}));
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<moe::TraceWriter> trace,
      OpenTrace(bundle->config, bundle->name, bundle->weights.get(), options.experts.trace_path));
  ASSIGN_OR_RETURN(bundle->model, TransformerModel::Create(
                                      bundle->config, bundle->weights.get(), bundle->backend.get(),
                                      {.kv_dtype = bundle->kv_dtype,
                                       .progress = InStage(options.progress, LoadStage::kLoading),
                                       .experts = std::move(tiers.source),
                                       .host_backend = bundle->host_backend.get(),
                                       .trace = std::move(trace)}));
  if (!offloads) return absl::OkStatus();
  bundle->offload_prefill_rows = kOffloadPrefillRows;
  return tiers.load_residents(InStage(options.progress, LoadStage::kReadingExperts));
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
  if (max_sequences < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_sequences is ", max_sequences, "; it must be at least 1"));
  }
  if (device == kernels::Device::kCpu && experts.host_memory.kind != ExpertMemoryKind::kAuto) {
    return absl::InvalidArgumentError(
        "--host-expert-memory is for experts below a GPU, and the device is cpu: use "
        "--expert-memory, or --device cuda");
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

absl::StatusOr<MemoryPlan> PlanModel(const std::string& path, const LoadOptions& options) {
  ModelBundle bundle;
  RETURN_IF_ERROR(Begin(path, options, &bundle).status());
  return bundle.plan;
}

absl::StatusOr<std::unique_ptr<ModelBundle>> LoadModel(const std::string& path,
                                                       const LoadOptions& options) {
  auto bundle = std::make_unique<ModelBundle>();
  ASSIGN_OR_RETURN(Checkpoint file, Begin(path, options, bundle.get()));
  bundle->name = bundle->config.name;
  ASSIGN_OR_RETURN(bundle->tokenizer, LoadTokenizer(file));
  bundle->chat_template = ParseChatTemplate(*bundle);
  if (options.planned) options.planned(bundle->plan);
  RETURN_IF_ERROR(Digest(file, options, bundle.get()));
  ASSIGN_OR_RETURN(bundle->weights,
                   WeightStore::Create(std::move(file), {.threads = bundle->threads,
                                                         .quantize_to = options.quantize_to,
                                                         .backend = bundle->backend.get()}));
  RETURN_IF_ERROR(LoadWeights(options, bundle.get()));
  bundle->weights->EndThreads();
  bundle->weight_bytes = bundle->weights->weight_bytes();
  return bundle;
}

}  // namespace tidepool::engine
