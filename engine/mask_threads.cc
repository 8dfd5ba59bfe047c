#include "engine/mask_threads.h"

#include <algorithm>

#include "engine/allowance.h"
#include "kernels/base/background_task.h"
#include "kernels/base/background_thread.h"
#include "kernels/base/clock.h"

namespace tidepool::engine {
namespace {

// While the first thread computes a mask, the forward pass has one CPU less. A mask may always take
// kMinQuickTime there. It may take longer while such masks have not disturbed the passes for long.
// Otherwise, many requests with slow grammars would make all responses slower.
constexpr absl::Duration kMinQuickTime = absl::Microseconds(100);
constexpr absl::Duration kMaxDisturbance = absl::Milliseconds(2);
constexpr double kShareDisturbed = 0.05;

}  // namespace

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
    threads_.emplace_back([this] { RunQuick(); });
    threads_.emplace_back([this] { RunSlow(); });
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

std::optional<MaskThreads::Job> MaskThreads::Next(Jobs* jobs) {
  const base::MutexLock lock(&mutex_);
  while (jobs->empty() && !stopping_) changed_.Wait(&mutex_);
  if (stopping_) return std::nullopt;
  Job job = std::move(jobs->front());
  jobs->pop_front();
  return job;
}

void MaskThreads::RunQuick() {
  const base::Clock& clock = base::Clock::Real();
  Allowance allowance(clock.Monotonic(), kMaxDisturbance, kShareDisturbed);
  while (std::optional<Job> job = Next(&quick_)) {
    const absl::Duration begin = clock.Monotonic(), cpu_begin = base::ThreadCpuTime();
    const absl::Duration end = begin + std::max(kMinQuickTime, allowance.Left(begin));
    const auto give_up = [&clock, end] { return clock.Monotonic() >= end; };
    const bool done = job->constraint->TryComputeMask(job->forbidden, give_up);
    allowance.Use(base::ThreadCpuTime() - cpu_begin);
    if (done) {
      Finish(*job);
    } else {
      job->constraint->NoteSlow();
      const base::MutexLock lock(&mutex_);
      slow_.push_back(*std::move(job));
      changed_.NotifyAll();
    }
  }
}

void MaskThreads::RunSlow() {
  base::LowerThreadPriority();
  while (const std::optional<Job> job = Next(&slow_)) {
    const base::BackgroundTask task;
    job->constraint->ComputeMask(job->forbidden);
    Finish(*job);
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
