// StreamState: what a stream and its workers are doing, and which states may follow each state. In
// the table, "it" is the stream.
//
// clang-format off
//   state              what happens                                       may be followed by
//   kStarting          its session or its model is looked up              running, in line, waiting
//   kRunning           a worker prepares or computes it                   backing off, in line,
//                                                                         waiting, migrating
//   kBackingOff        its worker has failed; it waits before a retry     in line
//   kInLine            it waits for its turn among the streams that       running, alone, waiting
//                      lost a worker
//   kWaitingForWorker  no worker can take it                              running, in line
//   kAlone             a worker computes it alone, because its prompt is  running, backing off,
//                      under suspicion (crash_evidence.h)                 migrating
//   kMigrating         its worker drains                                  running, alone, in line,
//                                                                         waiting
//   kEnded             its client has the final status; any state may     nothing
//                      end
// clang-format on
#ifndef TIDEPOOL_SERVICE_FRONT_STREAM_STATE_H_
#define TIDEPOOL_SERVICE_FRONT_STREAM_STATE_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace tidepool::service {

enum class StreamState : uint8_t {
  kStarting,
  kRunning,
  kBackingOff,
  kInLine,
  kWaitingForWorker,
  kAlone,
  kMigrating,
  kEnded,
};
inline constexpr size_t kStreamStates = 8;
inline constexpr const char* kStreamStateNames[kStreamStates] = {
    "starting",           "running", "backing off", "in line",
    "waiting for worker", "alone",   "migrating",   "ended"};

// Returns whether a stream may go from state `from` to state `to`. False if both are the same.
constexpr bool MayFollow(StreamState from, StreamState to) {
  using enum StreamState;
  if (from == to || from == kEnded) return false;
  if (to == kEnded) return true;
  switch (from) {
    case kStarting:
      return to == kRunning || to == kInLine || to == kWaitingForWorker;
    case kRunning:
      return to == kBackingOff || to == kInLine || to == kWaitingForWorker || to == kMigrating;
    case kBackingOff:
      return to == kInLine;
    case kInLine:
      return to == kRunning || to == kAlone || to == kWaitingForWorker;
    case kWaitingForWorker:
      return to == kRunning || to == kInLine;
    case kAlone:
      return to == kRunning || to == kBackingOff || to == kMigrating;
    case kMigrating:
      return to == kRunning || to == kAlone || to == kInLine || to == kWaitingForWorker;
    case kEnded:
      return false;
  }
  return false;
}

// Counts how often each state followed each other state. Plain data.
class StreamTransitions {
 public:
  void Note(StreamState from, StreamState to) {
    ++counts_[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }
  int64_t Count(StreamState from, StreamState to) const {
    return counts_[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }

 private:
  std::array<std::array<int64_t, kStreamStates>, kStreamStates> counts_ = {};
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_STREAM_STATE_H_
