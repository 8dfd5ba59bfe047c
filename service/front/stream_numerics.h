// StreamNumerics: the numerics_id of each worker that generated tokens of a stream. If they differ,
// the output may differ from what one worker alone would have generated.
#ifndef TIDEPOOL_SERVICE_FRONT_STREAM_NUMERICS_H_
#define TIDEPOOL_SERVICE_FRONT_STREAM_NUMERICS_H_

#include <string>
#include <utility>

#include "service/store/session_store.h"

namespace tidepool::service {

// Plain data.
class StreamNumerics {
 public:
  // The stream continues a logged turn with this numerics_id.
  void ContinueFrom(const std::string& logged) {
    changed_ = logged_ = logged == kSeveralNumerics;
    if (!changed_) first_ = logged;
  }
  // A worker with this numerics_id generates the next tokens. Returns true if they are the first
  // ones with a different id.
  bool Take(const std::string& worker, bool has_tokens) {
    if (first_.empty() || !has_tokens) first_ = worker;
    if (changed_ || worker == first_) return false;
    changed_ = true;
    return true;
  }

  const std::string& first() const { return first_; }  // id of the first tokens; empty: none yet
  bool changed() const { return changed_; }
  // What the next append writes to the log. Empty if nothing changed.
  std::string ForLog(bool begins_turn) {
    if (changed_ && !std::exchange(logged_, true)) return std::string(kSeveralNumerics);
    return begins_turn ? first_ : "";
  }

 private:
  std::string first_;
  bool changed_ = false;
  bool logged_ = false;  // the log says that the id changed
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_STREAM_NUMERICS_H_
