#include "engine/mask_thread.h"

#include <algorithm>

#include "kernels/base/clock.h"

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
  if (jobs.empty()) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  const base::MutexLock lock(&mutex_);
  left_ += jobs.size();
  for (Job& job : jobs) jobs_.push_back(std::move(job));
  changed_.NotifyAll();
}

void MaskThread::Wait(absl::Duration patience) {
  if (!thread_.joinable()) return;
  const base::MutexLock lock(&mutex_);
  const absl::Duration end = base::Clock::Real().Monotonic() + patience;
  // The thread computes the masks in their order.
  while (left_ > 0 && late_ == 0) {
    const absl::Duration rest = end - base::Clock::Real().Monotonic();
    if (rest <= absl::ZeroDuration()) break;
    changed_.WaitFor(&mutex_, std::min(rest, absl::Seconds(1)));
  }
  late_ = left_;
}

void MaskThread::Run() {
  while (true) {
    Job job;
    {
      const base::MutexLock lock(&mutex_);
      while (jobs_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.constraint->ComputeMask(job.forbidden);
    bool late = false;
    {
      const base::MutexLock lock(&mutex_);
      --left_;
      late = late_ > 0;
      if (late) --late_;
      changed_.NotifyAll();
    }
    if (late) on_late_();
  }
}

}  // namespace tidepool::engine
