#include "engine/scheduler/running_sequences.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace tidepool::engine {

RunningSequences::RunningSequences(const SchedulerOptions& options, const Decoder* decoder)
    : options_(options),
      decoder_(decoder),
      limits_({.prefill_chunk = options.prefill_chunk, .mixed_rows = options.limits.rows}) {
  CHECK(options.max_sequences >= 1 && options.prefill_chunk >= 1 &&
        options.max_concurrent_prefills >= 1 && options.max_sequences <= options.limits.rows &&
        options.max_sequences <= options.limits.logit_rows);
}

void RunningSequences::SetLimits(const StepLimits& limits) {
  CHECK(1 <= limits.prefill_chunk && limits.prefill_chunk <= options_.prefill_chunk)
      << limits.prefill_chunk;
  CHECK_GE(limits.mixed_rows, 1);
  limits_ = limits;
}

void RunningSequences::BeginStep() {
  rows_.Begin({.prompt = limits_.prefill_chunk,
               .attention_depth = limits_.attention_depth,
               .beside_ending = limits_.mixed_rows,
               .unfinished = options_.max_concurrent_prefills});
  for (const auto& sequence : running_) {
    if (ComputesPrompt(*sequence)) rows_.Add(PromptOf(*sequence, decoder_->PendingRows(*sequence)));
  }
  rows_.SetStepRows(PromptRowsOfStep());
}

// Returns the number of prompt rows in this step. It is limited by the rows that decodes leave, and
// by the latency that decodes allow.
int64_t RunningSequences::PromptRowsOfStep() const {
  int64_t step = options_.limits.rows;
  if (limits_.prefill_chunk < options_.prefill_chunk) {
    step = std::min(step, std::max(limits_.prefill_chunk, options_.max_sequences));
  }
  const int64_t decodes = CountDecodes();
  return decodes > 0 ? std::min(step - decodes, limits_.mixed_rows) : step;
}

int64_t RunningSequences::CountDecodes() const {
  return std::count_if(running_.begin(), running_.end(), [this](const auto& sequence) {
    return sequence->has_credit && decoder_->PendingRows(*sequence) == 1 &&
           !rows_.Has(sequence->arrival);
  });
}

PromptRows::Turn RunningSequences::JudgeRows(const Sequence& sequence, int64_t left) const {
  return rows_.Judge(PromptOf(sequence, left));
}

void RunningSequences::Insert(std::unique_ptr<Sequence> sequence, int64_t left) {
  rows_.Add(PromptOf(*sequence, left));
  engine::Insert(std::move(sequence), &running_);
}

std::unique_ptr<Sequence> RunningSequences::Take(const Sequence* sequence) {
  std::unique_ptr<Sequence> taken = TakeDone(sequence);
  rows_.Remove(taken->arrival);
  rows_.SetStepRows(PromptRowsOfStep());
  return taken;
}

std::unique_ptr<Sequence> RunningSequences::TakeDone(const Sequence* sequence) {
  return engine::Take(sequence, &running_);
}

Sequence* RunningSequences::LastStalled() const {
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    if (!(*it)->has_credit) return it->get();
  }
  return nullptr;
}

Sequence* RunningSequences::LastPrefillBelow(int32_t priority) const {
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    if ((*it)->request.priority >= priority) break;
    if (ComputesPrompt(**it)) return it->get();
  }
  return nullptr;
}

bool RunningSequences::ComputesPrompt(const Sequence& sequence) const {
  return sequence.has_credit && decoder_->PendingRows(sequence) > 1;
}

InFlightPrefixes RunningSequences::FindInFlightPrefixes() const {
  InFlightPrefixes prefixes;
  for (const auto& sequence : running_) {
    if (ComputesPrompt(*sequence)) prefixes.Add(sequence.get());
  }
  return prefixes;
}

int64_t RunningSequences::PendingPromptRows() const {
  int64_t rows = 0;
  for (const auto& sequence : running_) {
    const int64_t pending = decoder_->PendingRows(*sequence);
    if (pending > 1) rows += pending;
  }
  return rows;
}

}  // namespace tidepool::engine
