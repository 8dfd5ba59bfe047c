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
  int64_t decodes = 0, rows = 0;
  for (const auto& sequence : running_) {
    if (!sequence->has_credit || rows_.Has(sequence->arrival)) continue;
    ++decodes;
    rows += DecodeRows(*sequence);
  }
  if (decodes == 0) return step;
  return std::min({step - decodes, options_.limits.rows - rows, limits_.mixed_rows});
}

int64_t RunningSequences::DecodeRows(const Sequence& sequence) const {
  return std::min(decoder_->PendingRows(sequence), options_.limits.rows / options_.max_sequences);
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
  return sequence.has_credit && !sequence.decodes(decoder_->PendingRows(sequence));
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
    if (!sequence->decodes(pending)) rows += pending;
  }
  return rows;
}

}  // namespace tidepool::engine
