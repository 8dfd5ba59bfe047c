// StatsWatch: the logic of one Admin.WatchStats stream. It contains no threads and no gRPC, so
// tests can drive it.
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

// The stream that a StatsWatch writes to. Its functions are called on the loop.
class StatsWatchSink {
 public:
  virtual ~StatsWatchSink() = default;
  // Only one write is pending at a time. The next Write comes after StatsWatch::OnWritten.
  virtual void Write(v1::GetStatsResponse stats) = 0;
  // Ends the stream. Called once, and nothing is called after it. No write is pending at that time,
  // unless the watch was cancelled.
  virtual void Finish(absl::Status status) = 0;
};

// Every function must run on the loop, the executor that the constructor gets. At any time, at most
// one reading of the stats is requested or being sent. So a slow client gets new stats when it has
// received the last ones.
class StatsWatch : public std::enable_shared_from_this<StatsWatch> {
 public:
  // Requests a reading of the stats. The callback must be called once, on the loop.
  using Source = std::function<void(std::function<void(absl::StatusOr<v1::GetStatsResponse>)>)>;

  // All arguments must outlive the watch, except `sink`, which may be destroyed after Finish or
  // Abandon.
  StatsWatch(Executor* loop, StatsWatchSink* sink, Source source)
      : loop_(loop), sink_(sink), source_(std::move(source)) {}

  // Starts the stream. If a field of the request is out of range, ends it with INVALID_ARGUMENT.
  void Start(const v1::WatchStatsRequest& request);
  void OnWritten();
  // Ends the stream after the pending write. Does nothing if the stream has already ended.
  void End(const absl::Status& status);
  // The peer has disconnected. Ends the stream at once with CANCELLED.
  void Cancel();
  // The sink was destroyed, so nothing more is written to it.
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
  int64_t left_ = 0;      // number of readings still to send; below 0: no limit
  bool due_ = false;      // the next reading is due, but the last request or write was not finished
  bool asking_ = false;   // a reading was requested and has not arrived
  bool writing_ = false;  // a write is pending
  std::optional<absl::Status> end_;
};

// The watches that are running. Close ends all of them. Use it on the loop only.
class StatsWatches {
 public:
  // Starts a watch. After Close, finishes the sink and returns null.
  std::shared_ptr<StatsWatch> Start(Executor* loop, StatsWatchSink* sink,
                                    const v1::WatchStatsRequest& request,
                                    StatsWatch::Source source);
  // Ends all watches, and all watches that start later, with this status.
  void Close(const absl::Status& status);

 private:
  std::vector<std::weak_ptr<StatsWatch>> running_;
  absl::Status closed_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_STATS_WATCH_H_
