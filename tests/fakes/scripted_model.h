// ScriptedModel: a Model that the test controls. It stores its input tokens in the KV blocks of the
// batch and reads them back. Its logits depend on what it reads. So a wrong block table, a wrong
// slot, a block reused for other tokens or a wrong recurrent state changes the response.
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
  // 0: all layers are kFull. Otherwise every second layer is KvKind::kWindow.
  int64_t window = 0;
  int layers = 2;
  // Number of further layers that have a recurrent state instead of KV.
  int state_layers = 0;
};

// Sets the logits of the row after `history`, the tokens in layer 0's KV. The logits contain the
// default response at first.
using Script = std::function<void(absl::Span<const int32_t> history, absl::Span<float> logits)>;

// Returns a script that continues any prompt of `prompt_length` tokens with `reply`, and then with
// `filler`.
Script Replies(int64_t prompt_length, std::vector<int32_t> reply, int32_t filler);

// Thread-safe, except for Forward, which only the step thread calls. Large because it implements
// engine::Model, and tests set what each of its methods returns.
class ScriptedModel final : public engine::Model {
 public:
  explicit ScriptedModel(const ScriptedModelOptions& options = {});

  // The default response: logits in [-4, 4) from a hash of the whole history.
  void SetScript(Script script);
  // While `status` is not OK, Forward fails with it.
  void SetFailure(absl::Status status);
  // While `status` is not OK, Forward fails with it for batches with rows of this request
  // (RowSpan::request).
  void SetFailureOf(int64_t request, absl::Status status);

  // Sets the stats about offloaded experts that the model reports. By default, it reports none.
  void SetOffloadStats(const moe::OffloadStats& stats);

  // From now on, each Forward waits at its end for one Allow.
  void Hold();
  void Allow(int64_t forwards);
  // Ends Hold.
  void Release();
  // Makes a held Forward end a layer. Returns when that is done.
  void EndLayer();
  // Returns when this number of forwards have begun since the model was created.
  void WaitForForwards(int64_t forwards);

  int64_t forwards() const;       // begun
  int64_t rows() const;           // rows of all forwards
  int64_t largest_batch() const;  // rows
  int64_t max_spans() const;      // maximum number of spans in a batch

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
  void Advance(const engine::RowSpan& span, const engine::KvView& kv) const;
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
  int64_t failing_request_ TIDEPOOL_GUARDED_BY(mutex_) = -1;  // -1: every request fails
  std::optional<moe::OffloadStats> offload_ TIDEPOOL_GUARDED_BY(mutex_);
  bool holding_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  int64_t allowed_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int64_t layers_to_end_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int64_t layers_ended_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int64_t forwards_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int64_t rows_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int64_t largest_batch_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int64_t max_spans_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidepool::fakes

#endif  // TIDEPOOL_TESTS_FAKES_SCRIPTED_MODEL_H_
