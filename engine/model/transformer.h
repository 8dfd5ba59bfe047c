// TransformerModel: the forward pass that all supported families share. ModelConfig describes how
// they differ: in kinds of norms, FFNs, gates, rotations, windows and multipliers. Biases,
// attention sinks and selection biases are used if the checkpoint has them.
//
//   ASSIGN_OR_RETURN(auto model, TransformerModel::Create(config, store.get(), backend.get(),
//                                                         {.kv_dtype = DType::kF16}));
//   Arena workspace(model->WorkspaceBytes({.rows = 512, .logit_rows = 64}), model->memory());
//   ASSIGN_OR_RETURN(StepOutput step, model->Forward(batch, kv_view, &workspace));
#ifndef TIDEPOOL_ENGINE_MODEL_TRANSFORMER_H_
#define TIDEPOOL_ENGINE_MODEL_TRANSFORMER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/model/batch.h"
#include "engine/model/branch.h"
#include "engine/model/kv_spec.h"
#include "engine/model/model.h"
#include "engine/model/model_config.h"
#include "engine/model/row_checks.h"
#include "engine/model/transformer_weights.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"
#include "moe/expert_scheduler.h"
#include "moe/expert_source.h"
#include "moe/trace/trace_writer.h"

namespace tidepool::engine {

// Receives the batch's rows [rows, hidden_size] after each part of the graph. The parts are:
// - "embedding"
// - for each layer N: "layer.N.attention", which is the residual stream after attention (or after
//   the mixer that the layer has instead), and "layer.N", which is the residual stream after the
//   FFN or the experts
// - "norm", only for rows with requested logits
// If the output of a part is degenerate (hidden_values.h), the pass ends after this part. The view
// is in the host's memory, and only valid during the call.
using LayerObserver = std::function<void(absl::string_view name, kernels::ConstMatrixView rows)>;

// The KV settings of each layer.
std::vector<KvSpec> KvSpecsOf(const ModelConfig& config, kernels::DType kv_dtype);

struct TransformerOptions {
  kernels::DType kv_dtype = kernels::DType::kF16;  // requires: ModelConfig::CanStoreKv(kv_dtype)
  LoadProgress progress;
  // The source of routed experts. If null, all experts are packed into memory.
  std::unique_ptr<moe::ExpertSource> experts;
  // Computes the experts that the source provides in the host's memory. The backend must outlive
  // the model, and have the same precision as the model's backend. Null if there are none.
  kernels::KernelBackend* host_backend = nullptr;
  // Records the routing of every forward pass. If null, there is no trace.
  std::unique_ptr<moe::TraceWriter> trace;
};

// Model defines the thread contract. Large because it implements Model, and each part of the graph
// has its own method.
class TransformerModel final : public Model {
 public:
  // Packs the weights. `store` and `backend` must outlive the model. Returns the errors of
  // LoadTransformerWeights.
  static absl::StatusOr<std::unique_ptr<TransformerModel>> Create(const ModelConfig& config,
                                                                  WeightStore* store,
                                                                  kernels::KernelBackend* backend,
                                                                  TransformerOptions options);

  int vocab_size() const override { return config_.vocab_size; }
  int hidden_size() const override { return config_.hidden_size; }
  const std::vector<KvSpec>& kv_specs() const override { return kv_specs_; }
  int64_t short_slots() const override { return config_.ropes[0].short_slots; }
  size_t WorkspaceBytes(const BatchLimits& limits) const override;
  kernels::KernelBackend* backend() const override { return backend_; }

  // Requires: each span satisfies the conditions of RowSpan, and its blocks cover its slots.
  absl::StatusOr<StepOutput> Forward(const Batch& batch, const KvView& kv,
                                     kernels::Arena* workspace) override;

  void OnLayerEnd(std::function<void()> callback) override { layer_end_ = std::move(callback); }
  void Idle() override {
    if (expert_source_ != nullptr) expert_source_->Idle();
  }
  // Ends the trace. Must be called once, after the last Forward. If the file cannot be written, the
  // error names it.
  absl::Status Finish() {
    return expert_source_ == nullptr ? absl::OkStatus() : expert_source_->Finish();
  }

  uint64_t heartbeat() const override {
    return layers_done_ + (expert_scheduler_ == nullptr ? 0 : expert_scheduler_->heartbeat());
  }
  ExpertCounts last_expert_counts() const override { return expert_counts_; }
  std::optional<moe::OffloadStats> offload_stats() const override {
    if (expert_source_ == nullptr) return std::nullopt;
    return expert_source_->Stats();
  }
  moe::OffloadControl* offload_control() override {
    return expert_source_ == nullptr ? nullptr : expert_source_->control();
  }

  const ModelConfig& config() const { return config_; }
  // For debugging. An empty function removes the observer.
  void set_observer(LayerObserver observer) { observer_ = std::move(observer); }

 private:
  // Maximum rows of a pass that predicts experts. A pass with more rows needs most experts of a
  // layer, so hints would be useless.
  static constexpr int64_t kMaxHintRows = 16;

  // The result of a MoE layer's gate. All but x is in the host's memory.
  struct Gated {
    kernels::Activation x;              // the FFN's input; in the workspace
    const int32_t* ids = nullptr;       // [rows, top_k]
    const float* weights = nullptr;     // [rows, top_k]
    kernels::ConstMatrixView host_x;    // x.values, or without data if they were not copied
    std::unique_ptr<std::byte[]> copy;  // owns what they point to, if x is on a device
  };
  enum class HostX : uint8_t { kOmit, kCopy };

  // The cos and sin of one RopeConfig: [rows, dims / 2].
  struct Rotation {
    kernels::MatrixView cos;
    kernels::MatrixView sin;
  };

  // Rows of the batch that a mixer with a state computes together. The first row of the part is
  // row `first_row` of the batch, and row 0 of `spans`.
  struct StatePart {
    int64_t first_row = 0;
    int64_t rows = 0;
    std::vector<kernels::StateSpan> spans;
    std::vector<std::vector<kernels::StateSnapshot>> snapshots;  // of each span, within this part
  };

  // Copies of a device's results on the host. They never shrink, because each element that is added
  // again would be initialised again.
  struct HostCopies {
    std::vector<float> logits;
    std::vector<kernels::ArgMax> argmax;
    std::vector<float> observed;  // the rows for the observer
  };

  // The part of a pass's state that has one value per row and is not in the workspace.
  struct PassRows {
    std::vector<int32_t> ids;
    std::vector<int64_t> positions;
    std::vector<moe::Phase> phases;
    std::vector<int64_t> requests;
    RowChecks checks;
    std::vector<kernels::KvSpan> spans;  // for the current layer
    std::vector<Rotation> rotations;     // for each RopeConfig; the tables are in the workspace
    std::vector<StatePart> state_parts;  // empty if no layer has a state
    std::vector<int64_t> wanted;         // the rows whose logits or argmax are requested
    HostCopies copies;
  };

  // What all layers of one pass share.
  struct Pass {
    const Batch& batch;
    const KvView& kv;
    kernels::KernelBackend* backend;
    kernels::Arena* arena;
    PassRows* rows;
    TransformerModel* live;  // for counters and callbacks; null in a dry run
    kernels::MatrixView x;   // [rows, hidden], the residual stream; in the workspace

    // Whether this is a dry run. A dry run allocates from an arena without memory, and computes
    // nothing.
    bool dry() const { return live == nullptr; }
  };

  // The queries, keys and values of some rows. With MLA, v has no columns. The gate is only set if
  // attention is gated.
  struct Qkv {
    kernels::MatrixView q;
    kernels::MatrixView k;
    kernels::MatrixView v;
    kernels::MatrixView gate;
  };

  TransformerModel(const ModelConfig& config, kernels::KernelBackend* backend,
                   TransformerOptions options, TransformerWeights weights);

  // Runs the forward pass, or a dry run of it. It is const, so that a dry run cannot change the
  // model.
  absl::StatusOr<StepOutput> Walk(Pass pass) const;
  size_t DryRunBytes(const BatchLimits& limits) const;
  void Begin(Pass* pass) const;
  void FillRotations(const Pass& pass) const;
  absl::Status EndLayer(int layer, const Pass& pass) const;
  CheckTime check_time() const { return observer_ ? CheckTime::kAtOnce : CheckTime::kAtEnd; }
  static void CutStateParts(const Batch& batch, std::vector<StatePart>* parts);
  absl::Status Mix(int layer, const Pass& pass) const;
  void DeltaNet(int layer, const Pass& pass, const StatePart& part) const;
  void ShortConv(int layer, const Pass& pass, const StatePart& part) const;
  absl::Status Attention(int layer, const Pass& pass) const;
  absl::Status AttendRows(int layer, const Pass& pass, int64_t first_row,
                          absl::Span<const kernels::KvSpan> spans) const;
  Qkv Project(int layer, const Pass& pass, const kernels::Activation& x,
              const Rotation& rotation) const;
  Qkv ProjectLatent(int layer, const Pass& pass, const kernels::Activation& x,
                    const Rotation& rotation) const;
  kernels::MatrixView LatentQuery(int layer, const Pass& pass, const kernels::Activation& x,
                                  const Rotation& rotation) const;
  kernels::Activation LatentValues(int layer, const Pass& pass,
                                   const kernels::Activation& attended) const;
  void NormQk(const LayerWeights& weights, const Pass& pass, const Qkv& qkv) const;
  Branch AttentionBranch(int layer, const Pass& pass) const;
  Branch FfnBranch(int layer, const Pass& pass) const;
  void DenseFfn(int layer, const Pass& pass) const;
  absl::StatusOr<Gated> Gate(int layer, const Pass& pass, HostX host_x) const;
  absl::Status CopyGated(const Pass& pass, HostX host_x, Gated* gated) const;
  absl::Status MoeFfn(int layer, const Pass& pass) const;
  absl::Status RoutedExperts(int layer, const Pass& pass, const Gated& gated,
                             kernels::MatrixView out) const;
  absl::Status PrefetchHint(int layer, const Pass& pass) const;
  void SharedExpert(const MoeWeights& weights, const Pass& pass, const kernels::Activation& x,
                    kernels::MatrixView out) const;
  absl::StatusOr<StepOutput> Head(const Pass& pass) const;
  bool HeadHasTwoTerms() const;
  absl::Status CheckWantedRows(const Pass& pass) const;
  absl::StatusOr<StepOutput> EndHead(const Pass& pass, const kernels::HeadTarget& target) const;

  void CheckBatch(const Batch& batch, const KvView& kv) const;
  absl::Span<const kernels::KvSpan> SpansOf(int layer, const Pass& pass) const;
  absl::Status Observe(absl::string_view name, const Pass& pass,
                       kernels::ConstMatrixView rows) const;

  const ModelConfig config_;
  kernels::KernelBackend* const backend_;
  const bool on_host_;  // whether the host can use the backend's memory
  const TransformerWeights weights_;
  // For each RopeConfig: its frequencies, divided by rope_divisors and by long_rope_divisors.
  std::vector<std::vector<double>> inv_freq_;
  std::vector<std::vector<double>> long_inv_freq_;
  std::vector<int> moe_layer_;    // for each layer: its index among the MoE layers
  bool has_state_ = false;        // whether some layers have a recurrent state
  std::vector<KvSpec> kv_specs_;  // for each layer
  std::unique_ptr<moe::ExpertSource> expert_source_;        // null if there are no experts
  std::unique_ptr<moe::ExpertScheduler> expert_scheduler_;  // null if there are no experts
  PassRows rows_;  // used by the current or the latest Forward
  int64_t forwards_ = 0;
  std::atomic<uint64_t> layers_done_ = 0;  // by all forward passes
  ExpertCounts expert_counts_;
  LayerObserver observer_;
  std::function<void()> layer_end_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_TRANSFORMER_H_
