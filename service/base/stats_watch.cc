#include "service/base/stats_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

constexpr double kMinSeconds = 0.1;
constexpr double kMaxSeconds = 3600;

}  // namespace

void StatsWatch::Start(const v1::WatchStatsRequest& request) {
  const double seconds = request.has_interval_seconds() ? request.interval_seconds() : 1;
  if (!(seconds >= kMinSeconds && seconds <= kMaxSeconds)) {
    return Finish(absl::InvalidArgumentError(absl::StrCat("interval_seconds is ", seconds,
                                                          "; accepted: ", kMinSeconds, " to ",
                                                          kMaxSeconds, ", or unset (1)")));
  }
  if (request.has_count() && request.count() < 1) {
    return Finish(absl::InvalidArgumentError(absl::StrCat(
        "count is ", request.count(), "; accepted: 1 or more, or unset for no limit")));
  }
  interval_ = absl::Seconds(seconds);
  left_ = request.has_count() ? request.count() : -1;
  due_ = true;
  Tick();
}

void StatsWatch::Tick() {
  if (sink_ == nullptr) return;
  due_ = true;
  if (!asking_ && !writing_) Ask();
  loop_->PostAfter(interval_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Tick();
  });
}

void StatsWatch::Ask() {
  due_ = false;
  asking_ = true;
  source_([weak = weak_from_this()](absl::StatusOr<v1::GetStatsResponse> reading) {
    if (const auto self = weak.lock()) self->OnReading(std::move(reading));
  });
}

void StatsWatch::OnReading(absl::StatusOr<v1::GetStatsResponse> reading) {
  if (sink_ == nullptr) return;
  asking_ = false;
  if (!reading.ok()) return Finish(reading.status());
  writing_ = true;
  sink_->Write(*std::move(reading));
}

void StatsWatch::OnWritten() {
  if (sink_ == nullptr) return;
  writing_ = false;
  if (end_.has_value()) return Finish(*end_);
  if (left_ > 0 && --left_ == 0) return Finish(absl::OkStatus());
  if (due_) Ask();
}

void StatsWatch::End(const absl::Status& status) {
  if (sink_ == nullptr) return;
  if (writing_) {
    end_ = status;
  } else {
    Finish(status);
  }
}

void StatsWatch::Cancel() {
  if (sink_ != nullptr) {
    Finish(absl::CancelledError("the client cancelled, or its deadline passed"));
  }
}

void StatsWatch::Finish(const absl::Status& status) {
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
