#include "tests/fakes/scripted_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops.h"

namespace tidepool::fakes {
namespace {

using engine::KvView;
using kernels::kKvBlockTokens;

constexpr int kKeyDims = 2;    // the token, its slot
constexpr int kValueDims = 1;  // the token

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15;
  return hash ^ hash >> 29;
}

std::byte* Place(const kernels::KvLayer& layer, absl::Span<const int32_t> blocks, int64_t slot) {
  const int32_t block = blocks[slot / kKvBlockTokens];
  CHECK_GE(block, 0) << "slot " << slot << " has no block";
  return layer.arena + block * layer.block_bytes;
}

void Put(std::byte* at, int64_t index, int32_t value) {
  std::memcpy(at + index * sizeof(value), &value, sizeof(value));
}

int32_t Get(const std::byte* at, int64_t index) {
  int32_t value;
  std::memcpy(&value, at + index * sizeof(value), sizeof(value));
  return value;
}

// The content of a unit of a recurrent state. It is stored at both ends of the unit.
struct StateValue {
  uint64_t tokens = 1;  // a hash of all tokens so far
  int64_t count = 0;
};

StateValue After(StateValue value, int32_t token, uint64_t unit) {
  return {Mix(value.tokens, token + unit), value.count + 1};
}

// Returns a wrong value if the two ends differ.
StateValue Load(const kernels::StateArray& array, absl::Span<const int32_t> blocks, int64_t unit) {
  if (blocks.empty()) return {};
  const std::byte* at = array.Unit(blocks, unit);
  StateValue ends[2];
  std::memcpy(&ends[0], at, sizeof(StateValue));
  std::memcpy(&ends[1], at + array.unit_bytes - sizeof(StateValue), sizeof(StateValue));
  if (ends[0].tokens != ends[1].tokens || ends[0].count != ends[1].count) ends[0].tokens ^= 1;
  return ends[0];
}

void Store(const kernels::StateArray& array, absl::Span<const int32_t> blocks, int64_t unit,
           const StateValue& value) {
  std::byte* at = array.Unit(blocks, unit);
  std::memcpy(at, &value, sizeof(value));
  std::memcpy(at + array.unit_bytes - sizeof(value), &value, sizeof(value));
}

void Write(const engine::RowSpan& span, const KvView& kv) {
  for (size_t l = 0; l < kv.layers.size(); ++l) {
    if (kv.group_of_layer[l] < 0) continue;
    const kernels::KvLayer& layer = kv.layers[l];
    for (int64_t i = 0; i < span.rows(); ++i) {
      const int64_t slot = span.first_slot + i;
      const int64_t lane = slot % kKvBlockTokens;
      std::byte* block = Place(layer, span.blocks[kv.group_of_layer[l]], slot);
      Put(block + layer.k_offset, lane, span.token_ids[i]);
      Put(block + layer.k_offset, kKvBlockTokens + lane, static_cast<int32_t>(slot));
      Put(block + layer.v_offset, lane, span.token_ids[i]);
    }
  }
}

}  // namespace

Script Replies(int64_t prompt_length, std::vector<int32_t> reply, int32_t filler) {
  return [=](absl::Span<const int32_t> history, absl::Span<float> logits) {
    const size_t next = history.size() - prompt_length;
    logits[next < reply.size() ? reply[next] : filler] = 50;
  };
}

ScriptedModel::ScriptedModel(const ScriptedModelOptions& options) : options_(options) {
  for (int layer = 0; layer < options.layers; ++layer) {
    engine::KvSpec spec;
    if (options.window > 0 && layer % 2 == 1) {
      spec.kind = engine::KvKind::kWindow;
      spec.window = options.window;
    }
    spec.kv_heads = 1;
    spec.k_dim = kKeyDims;
    spec.v_dim = kValueDims;
    spec.dtype = kernels::DType::kF32;
    specs_.push_back(spec);
  }
  // A unit of the first array fills most of a block.
  for (int layer = 0; layer < options.state_layers; ++layer) {
    specs_.push_back({.kind = engine::KvKind::kState,
                      .state = {{.units = 2, .unit_bytes = 600}, {.units = 3, .unit_bytes = 40}}});
  }
}

void ScriptedModel::SetScript(Script script) {
  base::MutexLock lock(&mutex_);
  script_ = std::move(script);
}

void ScriptedModel::SetFailure(absl::Status status) {
  base::MutexLock lock(&mutex_);
  failure_ = std::move(status);
  failing_request_ = -1;
}

void ScriptedModel::SetFailureOf(int64_t request, absl::Status status) {
  base::MutexLock lock(&mutex_);
  failure_ = std::move(status);
  failing_request_ = request;
}

void ScriptedModel::SetOffloadStats(const moe::OffloadStats& stats) {
  base::MutexLock lock(&mutex_);
  offload_ = stats;
}

std::optional<moe::OffloadStats> ScriptedModel::offload_stats() const {
  base::MutexLock lock(&mutex_);
  return offload_;
}

void ScriptedModel::Hold() {
  base::MutexLock lock(&mutex_);
  holding_ = true;
}

void ScriptedModel::Allow(int64_t forwards) {
  base::MutexLock lock(&mutex_);
  allowed_ += forwards;
  changed_.NotifyAll();
}

void ScriptedModel::Release() {
  base::MutexLock lock(&mutex_);
  holding_ = false;
  changed_.NotifyAll();
}

void ScriptedModel::EndLayer() {
  base::MutexLock lock(&mutex_);
  const int64_t layer = ++layers_to_end_;
  changed_.NotifyAll();
  while (layers_ended_ < layer) changed_.Wait(&mutex_);
}

void ScriptedModel::WaitForForwards(int64_t forwards) {
  base::MutexLock lock(&mutex_);
  while (forwards_ < forwards) changed_.Wait(&mutex_);
}

int64_t ScriptedModel::forwards() const {
  base::MutexLock lock(&mutex_);
  return forwards_;
}

int64_t ScriptedModel::rows() const {
  base::MutexLock lock(&mutex_);
  return rows_;
}

int64_t ScriptedModel::largest_batch() const {
  base::MutexLock lock(&mutex_);
  return largest_batch_;
}

int64_t ScriptedModel::max_spans() const {
  base::MutexLock lock(&mutex_);
  return max_spans_;
}

size_t ScriptedModel::WorkspaceBytes(const engine::BatchLimits& limits) const {
  return limits.logit_rows * ((options_.vocab_size + 1) * sizeof(float) + sizeof(kernels::ArgMax)) +
         4 * kernels::kAlignment;
}

absl::Status ScriptedModel::Begin(const engine::Batch& batch) {
  base::MutexLock lock(&mutex_);
  ++forwards_;
  rows_ += batch.rows();
  largest_batch_ = std::max(largest_batch_, batch.rows());
  max_spans_ = std::max<int64_t>(max_spans_, batch.spans.size());
  changed_.NotifyAll();
  // A copy, because the thread-safety analysis does not see the lock inside a lambda.
  const int64_t failing = failing_request_;
  const bool fails =
      failing < 0 || std::any_of(batch.spans.begin(), batch.spans.end(),
                                 [&](const auto& span) { return span.request == failing; });
  return fails ? failure_ : absl::OkStatus();
}

void ScriptedModel::End() {
  while (WaitForLayerEnd()) {
    if (layer_end_) layer_end_();
    base::MutexLock lock(&mutex_);
    ++layers_ended_;
    changed_.NotifyAll();
  }
}

// Returns false if the pass ends.
bool ScriptedModel::WaitForLayerEnd() {
  base::MutexLock lock(&mutex_);
  while (holding_ && allowed_ == 0 && layers_ended_ == layers_to_end_) changed_.Wait(&mutex_);
  if (layers_ended_ < layers_to_end_) return true;
  if (holding_) --allowed_;
  return false;
}

absl::StatusOr<engine::StepOutput> ScriptedModel::Forward(const engine::Batch& batch,
                                                          const KvView& kv,
                                                          kernels::Arena* workspace) {
  const absl::Status begin = Begin(batch);
  workspace->Reset();
  engine::StepOutput output;
  if (begin.ok()) {
    for (const engine::RowSpan& span : batch.spans) Write(span, kv);
    for (const engine::RowSpan& span : batch.spans) Advance(span, kv);
    Answer(batch, kv, workspace, &output);
  }
  End();
  RETURN_IF_ERROR(begin);
  return output;
}

// Writes the states after the rows of a span.
void ScriptedModel::Advance(const engine::RowSpan& span, const KvView& kv) const {
  for (const std::vector<kernels::StateArray>& arrays : kv.states) {
    for (const kernels::StateArray& array : arrays) {
      for (size_t unit = 0; unit < array.units.size(); ++unit) {
        StateValue value = Load(array, span.state_in, unit);
        size_t snapshot = 0;
        for (int64_t row = 0; row < span.rows(); ++row) {
          value = After(value, span.token_ids[row], unit);
          if (snapshot == span.state_snapshots.size()) continue;
          if (span.state_snapshots[snapshot].rows != row + 1) continue;
          Store(array, span.state_snapshots[snapshot++].blocks, unit, value);
        }
        CHECK_EQ(snapshot, span.state_snapshots.size());
        Store(array, span.state_out, unit, value);
      }
    }
  }
}

void ScriptedModel::Answer(const engine::Batch& batch, const KvView& kv, kernels::Arena* workspace,
                           engine::StepOutput* output) {
  const int64_t wanted = batch.logit_rows() + batch.argmax_rows();
  const kernels::MatrixView logits = workspace->AllocateMatrix(wanted, options_.vocab_size);
  kernels::ArgMax* best = workspace->Allocate<kernels::ArgMax>(batch.argmax_rows());
  int64_t next[] = {0, batch.logit_rows()};
  for (const engine::RowSpan& span : batch.spans) {
    for (const int32_t row : span.logit_rows) {
      const int64_t at = next[span.argmax_vocab > 0]++;
      AnswerRow(span, row, kv, absl::MakeSpan(logits.Row(at), options_.vocab_size));
      if (span.argmax_vocab == 0) continue;
      kernels::ArgMax& found = best[at - batch.logit_rows()] = kernels::ArgMax();
      for (int32_t id = 0; id < span.argmax_vocab; ++id) {
        kernels::AddToArgMax(id, logits.Row(at)[id], &found);
      }
    }
  }
  output->logits = logits.RowRange(0, batch.logit_rows());
  output->argmax = absl::MakeConstSpan(best, static_cast<size_t>(batch.argmax_rows()));
}

// Reads all KV that the row attends to, in every layer.
void ScriptedModel::AnswerRow(const engine::RowSpan& span, int64_t row, const KvView& kv,
                              absl::Span<float> logits) {
  const int64_t last = span.first_slot + row;
  std::vector<int32_t> history;
  uint64_t hash = 1;
  for (const std::vector<kernels::StateArray>& arrays : kv.states) {
    for (const kernels::StateArray& array : arrays) {
      for (size_t unit = 0; unit < array.units.size(); ++unit) {
        StateValue value = Load(array, span.state_in, unit);
        for (int64_t i = 0; i <= row; ++i) value = After(value, span.token_ids[i], unit);
        hash = Mix(hash, value.tokens);
        hash = Mix(hash, value.count - last);
      }
    }
  }
  for (size_t l = 0; l < kv.layers.size(); ++l) {
    if (kv.group_of_layer[l] < 0) continue;
    const kernels::KvLayer& layer = kv.layers[l];
    const bool full = specs_[l].kind == engine::KvKind::kFull;
    const int64_t first = full ? 0 : std::max<int64_t>(0, last - specs_[l].window + 1);
    for (int64_t slot = first; slot <= last; ++slot) {
      const std::byte* block = Place(layer, span.blocks[kv.group_of_layer[l]], slot);
      const int64_t lane = slot % kKvBlockTokens;
      const int32_t token = Get(block + layer.k_offset, lane);
      hash = Mix(hash, token);
      hash = Mix(hash, Get(block + layer.k_offset, kKvBlockTokens + lane) - slot);
      hash = Mix(hash, Get(block + layer.v_offset, lane));
      if (l == 0) history.push_back(token);
    }
  }
  for (int id = 0; id < options_.vocab_size; ++id) {
    const uint64_t random = Mix(Mix(hash, id), hash >> 7);
    logits[id] = static_cast<float>(random >> 40) * 0x1p-21f - 4;
  }
  base::MutexLock lock(&mutex_);
  if (script_) script_(history, logits);
}

}  // namespace tidepool::fakes
