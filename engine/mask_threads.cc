#include "engine/mask_threads.h"

#include <algorithm>

#include "kernels/base/background_thread.h"
#include "kernels/base/clock.h"

namespace tidepool::engine {

MaskThreads::~MaskThreads() {
  {
    const base::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void MaskThreads::Begin(const StepPlan& plan) {
  std::vector<Job> jobs;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    Sequence* sequence = plan.items[i].sequence;
    const RowSpan& span = plan.batch.spans[i];
    const bool ends =
        span.first_slot + span.rows() == static_cast<int64_t>(sequence->tokens.size());
    const auto& constraint = sequence->constraint;
    if (!ends || constraint == nullptr || constraint->ready() || constraint->computing()) continue;
    constraint->BeginMask();
    const absl::Span<const int32_t> forbidden = sequence->forbidden_next();
    jobs.push_back({constraint, {forbidden.begin(), forbidden.end()}});
  }
  if (!jobs.empty() && threads_.empty()) {
    threads_.emplace_back([this] { Run(&quick_, &slow_); });
    threads_.emplace_back([this] {
      base::LowerThreadPriority();
      Run(&slow_, nullptr);
    });
  }
  const base::MutexLock lock(&mutex_);
  ++step_;
  left_ = 0;
  for (Job& job : jobs) {
    if (job.constraint->slow()) {  // the first thread would give up again
      slow_.push_back(std::move(job));
      continue;
    }
    job.step = step_;
    ++left_;
    quick_.push_back(std::move(job));
  }
  if (!jobs.empty()) changed_.NotifyAll();
}

void MaskThreads::Wait(absl::Duration patience) {
  const base::MutexLock lock(&mutex_);
  if (left_ == 0) return;
  const absl::Duration end = base::Clock::Real().Monotonic() + patience;
  while (left_ > 0) {
    const absl::Duration rest = end - base::Clock::Real().Monotonic();
    if (rest <= absl::ZeroDuration()) break;
    changed_.WaitFor(&mutex_, std::min(rest, absl::Seconds(1)));
  }
  left_ = 0;
}

void MaskThreads::Run(Jobs* jobs, Jobs* slow) {
  while (true) {
    Job job;
    {
      const base::MutexLock lock(&mutex_);
      while (jobs->empty() && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      job = std::move(jobs->front());
      jobs->pop_front();
    }
    const absl::Duration end = base::Clock::Real().Monotonic() + SequenceConstraint::kMaxQuickMask;
    const auto give_up = [slow, end] {
      return slow != nullptr && base::Clock::Real().Monotonic() >= end;
    };
    if (job.constraint->TryComputeMask(job.forbidden, give_up)) {
      Finish(job);
    } else {
      job.constraint->NoteSlow();
      const base::MutexLock lock(&mutex_);
      slow->push_back(std::move(job));
      changed_.NotifyAll();
    }
  }
}

void MaskThreads::Finish(const Job& job) {
  {
    const base::MutexLock lock(&mutex_);
    if (job.step == step_ && left_ > 0) {
      --left_;
      changed_.NotifyAll();
      return;
    }
  }
  on_late_();
}

}  // namespace tidepool::engine
