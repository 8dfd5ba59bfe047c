// SessionTurn: one turn of a session: its lease, the log as the turn found it, and the turn's
// appends. session_store.h defines what a turn is.
#ifndef TIDEPOOL_SERVICE_FRONT_SESSION_TURN_H_
#define TIDEPOOL_SERVICE_FRONT_SESSION_TURN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/base/event_loop.h"
#include "service/front/logged_turn.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// Loop only. Lives until the store has answered all of its calls, so that a lease granted after
// Close is released.
class SessionTurn : public std::enable_shared_from_this<SessionTurn> {
 public:
  // Receives events on the loop until Close.
  class Listener {
   public:
    virtual ~Listener() = default;
    // The lease is held, and log() and logged() are valid. On error, the lease could not be taken,
    // or the log has only a part of the request's turn.
    virtual void OnTurn(absl::Status status) = 0;
    // The oldest pending append is in the store.
    virtual void OnLogged() = 0;
    // The lease is lost, or an append failed: nothing more of this turn is stored.
    virtual void OnTurnLost(absl::Status status) = 0;
  };

  // All arguments outlive this object. The listener must live until Close.
  SessionTurn(Executor* loop, SessionStore* store, Listener* listener)
      : loop_(loop), store_(store), listener_(listener) {}

  // Takes the lease and renews it until the turn ends. Sets the lease's length.
  void Begin(TurnRequest request);
  // Sets session, epoch and expected_length. Requires: OnTurn was called with OK. Only the first
  // append has `begin`.
  void Append(AppendRequest append);
  // Releases the lease: the turn ends at the last stored append. A turn without appends leaves no
  // trace.
  void Close();

  // The log as the turn found it, without the request's own turn, which is in logged().
  const SessionLogData& log() const { return turn_.log; }
  // The request's own turn, if it is already in the log.
  const std::optional<LoggedTurn>& logged() const { return logged_; }
  // True if its first append was sent, now or by an earlier attempt.
  bool begun() const { return begun_; }

 private:
  void OnBegun(const std::string& request_id, absl::StatusOr<OpenTurn> turn);
  void KeepLease();
  void OnAppended(absl::Status status, int64_t length);
  void GiveBack();

  Executor* const loop_;
  SessionStore* const store_;
  Listener* listener_;  // null after Close
  OpenTurn turn_;
  std::optional<LoggedTurn> logged_;
  bool lease_held_ = false;
  bool begun_ = false;
  bool finished_ = false;      // the last append was sent
  bool failed_ = false;        // an append failed
  int64_t sent_length_ = 0;    // length of the log with all appends that were sent
  int64_t logged_length_ = 0;  // length of the log with all appends that were stored
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_SESSION_TURN_H_
