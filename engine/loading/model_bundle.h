// ModelBundle: everything that is loaded from one checkpoint, ready for an Engine.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<ModelBundle> bundle, LoadModel("model.gguf", {}));
//   ASSIGN_OR_RETURN(Arena workspace, MakeWorkspace(*bundle->model, {}));
#ifndef TIDEPOOL_ENGINE_LOADING_MODEL_BUNDLE_H_
#define TIDEPOOL_ENGINE_LOADING_MODEL_BUNDLE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/chat_template/chat_template.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/loading/memory_plan.h"
#include "engine/loading/tiered_model.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/backend.h"
#include "kernels/backends/make_backend.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

using BackendMaker = std::function<absl::StatusOr<std::unique_ptr<kernels::KernelBackend>>(
    const kernels::BackendOptions& options)>;

struct LoadOptions {
  int threads = 0;  // 0: the number from AvailableCpus()
  // kExact uses float32 activations and KV. It is slow, but the most precise.
  kernels::Precision precision = kernels::Precision::kFast;
  kernels::Isa isa = kernels::Isa::kBest;
  // On kCuda, weights, KV and the experts that fit are in the GPU's memory.
  kernels::Device device = kernels::Device::kCpu;
  std::optional<kernels::DType> kv_dtype;  // default: kF16, or kF32 with kExact
  std::optional<GgmlType> quantize_to;  // type to quantise weights to on loading; unset: unchanged
  // Settings for routed experts. By default, all experts are packed into memory.
  ExpertOptions experts;
  int64_t max_sequences = 1;  // of a step; a plan of a GPU's memory counts their workspace
  // Called once, before anything is loaded. May be empty.
  std::function<void(const MemoryPlan& plan)> planned;
  // Called on the calling thread. In each stage, the fraction increases up to 1. May be empty.
  StageProgress progress;
  // Makes the backends. Tests replace it.
  BackendMaker make_backend = kernels::MakeBackend;

  // Returns INVALID_ARGUMENT with the field, its value and the accepted values.
  absl::Status Validate() const;
};

// Immutable after LoadModel, except for the model's own state (see the class Model).
struct ModelBundle {
  ModelConfig config;
  std::string name;    // general.name, or the file's name
  std::string digest;  // Checkpoint::SampledDigest, an id of the checkpoint that costs little
  std::string content_digest;  // digest of every byte of the checkpoint (content_digest.h)
  // OK if content_digest is recorded. Otherwise the reason why it could not be recorded; the next
  // load then computes it again.
  absl::Status digest_recorded;
  // Two workers with the same checkpoint compute the same bits if their numerics_id is the same. It
  // contains everything else that can change bits: the version of our arithmetic, the device, the
  // precision and the KV type. The number of threads and the CPU instruction set never change bits.
  std::string numerics_id;
  kernels::DType kv_dtype = kernels::DType::kF16;
  int threads = 0;
  size_t weight_bytes = 0;  // bytes of weights in memory, without experts that can be evicted
  MemoryPlan plan;
  // The number of prompt rows per pass that gives good speed if the pass must read experts. It is
  // kOffloadPrefillRows, or 0 if all experts are always in memory.
  int64_t offload_prefill_rows = 0;
  // offload_prefill_rows or kPrefillRows. It can change, because operators can change how many
  // experts are resident.
  int64_t prefill_rows() const;

  std::unique_ptr<kernels::KernelBackend> backend;
  // Computes experts that are in the host's memory below a GPU. Null if there are none.
  std::unique_ptr<kernels::KernelBackend> host_backend;
  std::unique_ptr<WeightStore> weights;
  std::unique_ptr<TransformerModel> model;
  std::unique_ptr<Tokenizer> tokenizer;
  // If there is no template, this is an error: FAILED_PRECONDITION if the file has none, or the
  // error of ChatTemplate::Parse. The error only matters for chats.
  absl::StatusOr<ChatTemplate> chat_template = absl::UnknownError("not loaded");
};

// Loads a model. Errors: NOT_FOUND or PERMISSION_DENIED for the file; INVALID_ARGUMENT for an
// option, or for the file's contents (one line that names the file and the tensor or key);
// UNIMPLEMENTED for an unsupported architecture or tokenizer; FAILED_PRECONDITION if the machine
// lacks options.isa or options.device; RESOURCE_EXHAUSTED if the weights do not fit into memory;
// and the errors of PlanMemory and MakeExpertTiers.
absl::StatusOr<std::unique_ptr<ModelBundle>> LoadModel(const std::string& path,
                                                       const LoadOptions& options);

// Plans the memory of a model without loading it. Returns the errors of LoadModel that occur before
// weights are loaded.
absl::StatusOr<MemoryPlan> PlanModel(const std::string& path, const LoadOptions& options);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_MODEL_BUNDLE_H_
