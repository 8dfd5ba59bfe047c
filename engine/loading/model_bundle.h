// ModelBundle: everything that is loaded from one checkpoint, ready for an Engine.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<ModelBundle> bundle, LoadModel("model.gguf", {}));
//   Arena workspace(bundle->model->WorkspaceBytes({}));
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
#include "engine/loading/tiered_model.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

struct LoadOptions {
  int threads = 0;  // 0: AvailableCpus()
  // kExact: float32 activations and KV, slow and most precise.
  kernels::Precision precision = kernels::Precision::kFast;
  kernels::Isa isa = kernels::Isa::kBest;
  std::optional<kernels::DType> kv_dtype;  // unset: kF16, and kF32 with kExact
  std::optional<GgmlType> quantize_to;     // of weights, while loading; unset: as they are
  // For routed experts. By default, all are packed into memory.
  ExpertOptions experts;
  // Called on the calling thread, in each stage with increasing fractions up to 1.
  StageProgress progress;

  // INVALID_ARGUMENT names the field, its value and what is accepted.
  absl::Status Validate() const;
};

// Immutable after LoadModel, except for the model's own state (see Model).
struct ModelBundle {
  ModelConfig config;
  std::string name;            // general.name, or the file's name
  std::string digest;          // Checkpoint::SampledDigest, which identifies the checkpoint
  std::string content_digest;  // digest of every byte (content_digest.h)
  // OK, or why content_digest could not be recorded. Then the next load computes it again.
  absl::Status digest_recorded;
  // Identifies everything that can change the output's bits between workers with the same
  // checkpoint: the version of our arithmetic, device, precision, KV type. Threads and CPU
  // instruction set never do.
  std::string numerics_id;
  kernels::DType kv_dtype = kernels::DType::kF16;
  int threads = 0;
  size_t weight_bytes = 0;  // in memory, without experts that can be evicted
  // Useful numbers of prompt rows per pass. The second is for passes that must read experts. 0 if
  // all experts are always in memory.
  static constexpr int64_t kPrefillRows = 512;
  int64_t offload_prefill_rows = 0;
  // The number that applies now: operators may change how many experts are resident.
  int64_t prefill_rows() const;

  std::unique_ptr<WeightStore> weights;
  std::unique_ptr<kernels::KernelBackend> backend;
  std::unique_ptr<TransformerModel> model;
  std::unique_ptr<Tokenizer> tokenizer;
  // If there is no template, the error, which only matters for chats: FAILED_PRECONDITION (the file
  // has none), or that of ChatTemplate::Parse.
  absl::StatusOr<ChatTemplate> chat_template = absl::UnknownError("not loaded");
};

// Errors: NOT_FOUND or PERMISSION_DENIED (the file); INVALID_ARGUMENT (an option, or the file's
// contents; one line that names the file and the tensor or key); UNIMPLEMENTED (an architecture or
// tokenizer); FAILED_PRECONDITION (the machine lacks options.isa); and those of MakeTieredExperts.
absl::StatusOr<std::unique_ptr<ModelBundle>> LoadModel(const std::string& path,
                                                       const LoadOptions& options);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_MODEL_BUNDLE_H_
