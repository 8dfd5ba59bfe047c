#include "engine/mask_thread.h"

#include <utility>

#include "kernels/base/check.h"

namespace tidepool::engine {

MaskThread::~MaskThread() {
  if (!thread_.joinable()) return;
  {
    const base::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void MaskThread::Begin(const StepPlan& plan) {
  std::vector<Sequence*> sequences;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    Sequence* sequence = plan.items[i].sequence;
    const RowSpan& span = plan.batch.spans[i];
    const bool ends =
        span.first_slot + span.rows() == static_cast<int64_t>(sequence->tokens.size());
    if (ends && sequence->constraint != nullptr && !sequence->constraint->allows_all()) {
      sequences.push_back(sequence);
    }
  }
  if (sequences.empty()) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  const base::MutexLock lock(&mutex_);
  CHECK(left_.empty());
  left_ = std::move(sequences);
  changed_.NotifyAll();
}

void MaskThread::Wait() {
  if (!thread_.joinable()) return;
  const base::MutexLock lock(&mutex_);
  while (!left_.empty()) changed_.Wait(&mutex_);
}

void MaskThread::Run() {
  while (true) {
    std::vector<Sequence*> sequences;
    {
      const base::MutexLock lock(&mutex_);
      while (left_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      sequences = left_;
    }
    for (Sequence* sequence : sequences) {
      sequence->constraint->ComputeMask(sequence->forbidden_next());
    }
    const base::MutexLock lock(&mutex_);
    left_.clear();
    changed_.NotifyAll();
  }
}

}  // namespace tidepool::engine
