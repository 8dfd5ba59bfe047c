// StatsWatch: one Admin.WatchStats between where stats come from and its stream, without either's
// threads.
#ifndef TIDEPOOL_SERVICE_BASE_STATS_WATCH_H_
#define TIDEPOOL_SERVICE_BASE_STATS_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "service/base/event_loop.h"
#include "tidepool/v1/admin.pb.h"

namespace tidepool::service {

// The stream that a StatsWatch writes to. Called on the loop.
class StatsWatchSink {
 public:
  virtual ~StatsWatchSink() = default;
  // One at a time: the next comes after StatsWatch::OnWritten.
  virtual void Write(v1::GetStatsResponse stats) = 0;
  // Once, with no write outstanding unless the watch was cancelled. Nothing is called after it.
  virtual void Finish(absl::Status status) = 0;
};

// Loop only: every function runs on the executor that it was made with. One reading is asked for or
// in flight at a time, and none before the last was taken, so that a slow reader gets the newest.
class StatsWatch : public std::enable_shared_from_this<StatsWatch> {
 public:
  // Asks for a reading; calls back on the loop, once.
  using Source = std::function<void(std::function<void(absl::StatusOr<v1::GetStatsResponse>)>)>;

  // All outlive the watch, save that the sink may go once Finish was called or after Abandon.
  StatsWatch(Executor* loop, StatsWatchSink* sink, Source source)
      : loop_(loop), sink_(sink), source_(std::move(source)) {}

  // INVALID_ARGUMENT ends it: a field is outside its range.
  void Start(const v1::WatchStatsRequest& request);
  void OnWritten();
  // Ends the stream behind a write in flight, if it has not ended.
  void End(const absl::Status& status);
  // The peer is gone: ends the stream at once with CANCELLED.
  void Cancel();
  // The sink is gone.
  void Abandon() { sink_ = nullptr; }

 private:
  void Tick();
  void Ask();
  void OnReading(absl::StatusOr<v1::GetStatsResponse> reading);
  void Finish(const absl::Status& status);

  Executor* loop_;
  StatsWatchSink* sink_;  // null once finished
  Source source_;
  absl::Duration interval_;
  int64_t left_ = 0;      // to be written; below 0: without end
  bool due_ = false;      // the interval passed while a reading was asked for or written
  bool asking_ = false;   // for a reading
  bool writing_ = false;  // the last one
  std::optional<absl::Status> end_;
};

// Loop only. Those that run, to be ended together.
class StatsWatches {
 public:
  // Null when the door is closed; the sink has been told then.
  std::shared_ptr<StatsWatch> Start(Executor* loop, StatsWatchSink* sink,
                                    const v1::WatchStatsRequest& request,
                                    StatsWatch::Source source);
  // Ends all with this status, and whatever comes later.
  void Close(const absl::Status& status);

 private:
  std::vector<std::weak_ptr<StatsWatch>> running_;
  absl::Status closed_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_STATS_WATCH_H_
