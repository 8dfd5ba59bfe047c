// StreamNumerics: the numerics_ids of the workers that have generated tokens of a stream. A
// numerics_id identifies everything that can change the last bits of a result (WorkerModel). If the
// ids are different, the output may be different from the output of a single worker.
#ifndef TIDEPOOL_SERVICE_FRONT_STREAM_NUMERICS_H_
#define TIDEPOOL_SERVICE_FRONT_STREAM_NUMERICS_H_

#include <string>
#include <utility>

#include "service/store/session_store.h"

namespace tidepool::service {

// Plain data.
class StreamNumerics {
 public:
  // The stream continues a turn that is in the log with this numerics_id.
  void ContinueFrom(const std::string& logged) {
    changed_ = logged_ = logged == kSeveralNumerics;
    if (!changed_) first_ = logged;
  }
  // The next tokens come from a worker with this numerics_id. Returns true when the id is different
  // from that of the first tokens, but only the first time.
  bool Take(const std::string& worker, bool has_tokens) {
    if (first_.empty() || !has_tokens) first_ = worker;
    if (changed_ || worker == first_) return false;
    changed_ = true;
    return true;
  }

  const std::string& first() const { return first_; }  // id of the first tokens; empty: none yet
  bool changed() const { return changed_; }
  // Returns the numerics_id for the next append to the log. Empty: the log needs no new value.
  std::string ForLog(bool begins_turn) {
    if (changed_ && !std::exchange(logged_, true)) return std::string(kSeveralNumerics);
    return begins_turn ? first_ : "";
  }

 private:
  std::string first_;
  bool changed_ = false;
  bool logged_ = false;  // the log already says that the id has changed
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_STREAM_NUMERICS_H_
