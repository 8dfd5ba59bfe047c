#include "service/stats_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

constexpr double kLeastSeconds = 0.1;
constexpr double kMostSeconds = 3600;

}  // namespace

void StatsWatch::Start(const v1::WatchStatsRequest& request) {
  const double seconds = request.has_interval_seconds() ? request.interval_seconds() : 1;
  if (!(seconds >= kLeastSeconds && seconds <= kMostSeconds)) {
    return End(absl::InvalidArgumentError(absl::StrCat("interval_seconds is ", seconds,
                                                       "; accepted: ", kLeastSeconds, " to ",
                                                       kMostSeconds, ", or unset for 1")));
  }
  if (request.has_count() && request.count() < 1) {
    return End(absl::InvalidArgumentError(
        absl::StrCat("count is ", request.count(), "; accepted: 1 or more, or unset for no end")));
  }
  interval_ = absl::Seconds(seconds);
  left_ = request.has_count() ? request.count() : -1;
  due_ = true;
  Tick();
}

void StatsWatch::Tick() {
  if (sink_ == nullptr) return;
  due_ = true;
  if (!busy_) Ask();
  loop_->PostAfter(interval_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Tick();
  });
}

void StatsWatch::Ask() {
  due_ = false;
  busy_ = true;
  source_([weak = weak_from_this()](absl::StatusOr<v1::GetStatsResponse> reading) {
    if (const auto self = weak.lock()) self->OnReading(std::move(reading));
  });
}

void StatsWatch::OnReading(absl::StatusOr<v1::GetStatsResponse> reading) {
  if (sink_ == nullptr) return;
  if (!reading.ok()) return End(reading.status());
  sink_->Write(*std::move(reading));
}

void StatsWatch::OnWritten() {
  if (sink_ == nullptr) return;
  busy_ = false;
  if (left_ > 0 && --left_ == 0) return End(absl::OkStatus());
  if (due_) Ask();
}

void StatsWatch::End(const absl::Status& status) {
  if (sink_ == nullptr) return;
  std::exchange(sink_, nullptr)->Finish(status);
}

std::shared_ptr<StatsWatch> StatsWatches::Start(Executor* loop, StatsWatchSink* sink,
                                                const v1::WatchStatsRequest& request,
                                                StatsWatch::Source source) {
  if (!closed_.ok()) {
    sink->Finish(closed_);
    return nullptr;
  }
  std::erase_if(running_, [](const auto& watch) { return watch.expired(); });
  auto watch = std::make_shared<StatsWatch>(loop, sink, std::move(source));
  running_.push_back(watch);
  watch->Start(request);
  return watch;
}

void StatsWatches::Close(const absl::Status& status) {
  closed_ = status;
  for (const auto& weak : std::exchange(running_, {})) {
    if (const auto watch = weak.lock()) watch->End(status);
  }
}

}  // namespace tidepool::service
