// ScriptedModel: a Model driven by hand. It keeps what it is fed in the KV blocks that it is told
// to use, and reads them back: its logits are a function of what lies there, so a wrong block
// table, a wrong slot or a block reused for other tokens changes the answer.
#ifndef TIDEPOOL_TESTS_FAKES_SCRIPTED_MODEL_H_
#define TIDEPOOL_TESTS_FAKES_SCRIPTED_MODEL_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/model/model.h"
#include "kernels/base/mutex.h"

namespace tidepool::fakes {

struct ScriptedModelOptions {
  int vocab_size = 259;
  // 0: all layers keep everything. Else every second layer is of KvKind::kWindow.
  int64_t window = 0;
  int layers = 2;
};

// Sets the logits of the row behind `history`, the tokens that layer 0's KV holds. They come filled
// with what the model answers by itself.
using Script = std::function<void(absl::Span<const int32_t> history, absl::Span<float> logits)>;

// Makes a script that goes on with `reply` behind any prompt of `prompt_length` tokens, and with
// `filler` behind that.
Script Replies(int64_t prompt_length, std::vector<int32_t> reply, int32_t filler);

// Thread-safe, save that Forward is the step thread's.
class ScriptedModel final : public engine::Model {
 public:
  explicit ScriptedModel(const ScriptedModelOptions& options = {});

  // The default answer: logits in [-4, 4) drawn from a hash of the whole history.
  void SetScript(Script script);
  // Forward fails from now on, as long as `status` is not OK.
  void SetFailure(absl::Status status);
  // The same for batches that hold rows of this request (RowSpan::request).
  void SetFailureOf(int64_t request, absl::Status status);

  // What the model tells of experts that are not all in memory; none to begin with.
  void SetOffloadStats(const moe::OffloadStats& stats);

  // From now on each Forward waits at its end for one Allow.
  void Hold();
  void Allow(int64_t forwards);
  // No more holding.
  void Release();
  // Has a Forward that is held end a layer, and returns when that is done.
  void EndLayer();
  // Returns once `forwards` have begun since the model was made.
  void WaitForForwards(int64_t forwards);

  int64_t forwards() const;       // begun
  int64_t rows() const;           // of all of them
  int64_t largest_batch() const;  // rows
  int64_t most_spans() const;     // of one batch

  int vocab_size() const override { return options_.vocab_size; }
  int hidden_size() const override { return 1; }
  const std::vector<engine::KvSpec>& kv_specs() const override { return specs_; }
  size_t WorkspaceBytes(const engine::BatchLimits& limits) const override;
  absl::StatusOr<engine::StepOutput> Forward(const engine::Batch& batch, const engine::KvView& kv,
                                             kernels::Arena* workspace) override;
  void OnLayerEnd(std::function<void()> callback) override { layer_end_ = std::move(callback); }
  engine::ExpertCounts last_expert_counts() const override { return {.hits = 3, .misses = 1}; }
  std::optional<moe::OffloadStats> offload_stats() const override;

 private:
  absl::Status Begin(const engine::Batch& batch);
  void Answer(const engine::Batch& batch, const engine::KvView& kv, kernels::Arena* workspace,
              engine::StepOutput* output);
  void AnswerRow(const engine::RowSpan& span, int64_t row, const engine::KvView& kv,
                 absl::Span<float> logits);
  void End();
  bool WaitForLayerEnd();

  const ScriptedModelOptions options_;
  std::vector<engine::KvSpec> specs_;
  std::function<void()> layer_end_;

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  Script script_ TIDEPOOL_GUARDED_BY(mutex_);
  absl::Status failure_ TIDEPOOL_GUARDED_BY(mutex_);
  int64_t failing_request_ TIDEPOOL_GUARDED_BY(mutex_) = -1;  // -1: all
  std::optional<moe::OffloadStats> offload_ TIDEPOOL_GUARDED_BY(mutex_);
  bool holding_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  int64_t allowed_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int64_t layers_to_end_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int64_t layers_ended_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int64_t forwards_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int64_t rows_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int64_t largest_batch_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int64_t most_spans_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidepool::fakes

#endif  // TIDEPOOL_TESTS_FAKES_SCRIPTED_MODEL_H_
