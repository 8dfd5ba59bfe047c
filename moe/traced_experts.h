// TracedExperts: an ExpertSource that wraps another source and writes its requests into a trace.
#ifndef TIDEPOOL_MOE_TRACED_EXPERTS_H_
#define TIDEPOOL_MOE_TRACED_EXPERTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "moe/expert_source.h"
#include "moe/trace/trace_writer.h"

namespace tidepool::moe {

// Engine thread only. If the trace cannot be written, the request fails with the writer's error,
// because an incomplete trace would be misleading.
class TracedExperts final : public ExpertSource {
 public:
  // `clock` must outlive this object.
  TracedExperts(std::unique_ptr<ExpertSource> source, std::unique_ptr<TraceWriter> trace,
                const base::Clock* clock = &base::Clock::Real())
      : source_(std::move(source)), trace_(std::move(trace)), clock_(clock) {}

  void Request(const LayerRouting& routing, absl::Span<const int32_t> experts) override {
    written_ = trace_->Write(routing);
    if (const absl::Duration now = clock_->Monotonic(); now - flushed_at_ >= kFlushEach) {
      flushed_at_ = now;
      written_.Update(trace_->Flush());
    }
    source_->Request(routing, experts);
  }
  absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience patience) override {
    if (written_.ok()) return source_->NextReady(patience);
    // Take and release all experts, so that the source can end the request.
    while (true) {
      ASSIGN_OR_RETURN(const std::vector<ReadyExpert> rest,
                       source_->NextReady(Patience::kUntilOne));
      if (rest.empty()) return std::exchange(written_, absl::OkStatus());
      for (const ReadyExpert& ready : rest) source_->Release(ready.expert);
    }
  }
  void Release(int32_t expert) override { source_->Release(expert); }
  void Postpone(int32_t expert) override { source_->Postpone(expert); }
  void PrefetchHint(int moe_layer, absl::Span<const int32_t> experts) override {
    source_->PrefetchHint(moe_layer, experts);
  }
  bool WantsHints() const override { return source_->WantsHints(); }
  void NoteHostWork(const HostWork& work) override { source_->NoteHostWork(work); }
  // An error is not lost: the next Request or Finish returns it.
  void Idle() override { trace_->Flush().IgnoreError(); }
  absl::Status Finish() override {
    absl::Status ended = source_->Finish();
    ended.Update(trace_->Close());
    return ended;
  }
  std::optional<OffloadStats> Stats() const override { return source_->Stats(); }
  OffloadControl* control() override { return source_->control(); }

 private:
  // Interval at which the trace is flushed, so that readers of the file see recent lines, and a
  // killed process loses little.
  static constexpr absl::Duration kFlushEach = absl::Seconds(1);

  const std::unique_ptr<ExpertSource> source_;
  const std::unique_ptr<TraceWriter> trace_;
  const base::Clock* const clock_;
  absl::Duration flushed_at_;
  absl::Status written_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_TRACED_EXPERTS_H_
