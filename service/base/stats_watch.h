// StatsWatch: the logic of one Admin.WatchStats stream, without threads of gRPC or of the source.
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
  // One write at a time: the next comes after StatsWatch::OnWritten.
  virtual void Write(v1::GetStatsResponse stats) = 0;
  // Called once. No write is pending then, unless the watch was cancelled. Nothing is called after
  // it.
  virtual void Finish(absl::Status status) = 0;
};

// Loop only: every function runs on the executor passed to the constructor. At most one reading is
// requested or being written at a time, so that a slow reader gets the newest stats.
class StatsWatch : public std::enable_shared_from_this<StatsWatch> {
 public:
  // Requests a reading. The callback is called once, on the loop.
  using Source = std::function<void(std::function<void(absl::StatusOr<v1::GetStatsResponse>)>)>;

  // All arguments must outlive the watch. The sink may be destroyed after Finish or Abandon.
  StatsWatch(Executor* loop, StatsWatchSink* sink, Source source)
      : loop_(loop), sink_(sink), source_(std::move(source)) {}

  // Ends the stream with INVALID_ARGUMENT if a field is out of range.
  void Start(const v1::WatchStatsRequest& request);
  void OnWritten();
  // Ends the stream after a pending write, unless it has already ended.
  void End(const absl::Status& status);
  // The peer disconnected: ends the stream at once with CANCELLED.
  void Cancel();
  // The sink was destroyed.
  void Abandon() { sink_ = nullptr; }

 private:
  void Tick();
  void Ask();
  void OnReading(absl::StatusOr<v1::GetStatsResponse> reading);
  void Finish(const absl::Status& status);

  Executor* loop_;
  StatsWatchSink* sink_;  // null after Finish
  Source source_;
  absl::Duration interval_;
  int64_t left_ = 0;      // readings still to write; below 0: no limit
  bool due_ = false;      // the interval passed during a request or write
  bool asking_ = false;   // a reading is requested
  bool writing_ = false;  // a write is pending
  std::optional<absl::Status> end_;
};

// Loop only. The running watches, which end together.
class StatsWatches {
 public:
  // Returns null after Close. In this case, the sink was finished.
  std::shared_ptr<StatsWatch> Start(Executor* loop, StatsWatchSink* sink,
                                    const v1::WatchStatsRequest& request,
                                    StatsWatch::Source source);
  // Ends all watches with this status, and any later ones.
  void Close(const absl::Status& status);

 private:
  std::vector<std::weak_ptr<StatsWatch>> running_;
  absl::Status closed_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_STATS_WATCH_H_
