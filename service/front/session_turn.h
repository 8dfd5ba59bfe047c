// SessionTurn: one turn of a session. It holds the session's lease, has the log as it was when the
// turn began, and appends to the log. session_store.h explains turns and leases.
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

// Use it on the loop only. The object lives until the store has responded to all of its calls. So
// even a lease that is granted after Close is released.
class SessionTurn : public std::enable_shared_from_this<SessionTurn> {
 public:
  // Receives events on the loop, until Close is called.
  class Listener {
   public:
    virtual ~Listener() = default;
    // If OK, the lease is held, and log() and logged() are valid. An error means that the lease
    // could not be taken, or that the log contains only a part of the request's turn.
    virtual void OnTurn(absl::Status status) = 0;
    // The oldest append that was pending is now in the store.
    virtual void OnLogged() = 0;
    // The lease was lost, or an append failed. Nothing more of this turn will be stored.
    virtual void OnTurnLost(absl::Status status) = 0;
  };

  // All arguments must outlive this object, except the listener, which must live until Close.
  SessionTurn(Executor* loop, SessionStore* store, Listener* listener)
      : loop_(loop), store_(store), listener_(listener) {}

  // Takes the lease, and renews it until the turn ends. This function sets the length of the lease.
  void Begin(TurnRequest request);
  // Appends to the log. This function sets the fields session_id, epoch and expected_length.
  // Requires: OnTurn was called with OK, and only the first append has `begin`.
  void Append(AppendRequest append);
  // Releases the lease. The turn ends with the last append that was stored. If nothing was
  // appended, the log does not change.
  void Close();

  // Returns the log as it was when the turn began. If the log already contained the request's own
  // turn, that turn is removed, and logged() returns it.
  const SessionLogData& log() const { return turn_.log; }
  // Returns the request's own turn if it was already in the log.
  const std::optional<LoggedTurn>& logged() const { return logged_; }
  // Returns whether the turn's first append was sent, by this attempt or by an earlier one.
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
  bool failed_ = false;        // an append has failed
  int64_t sent_length_ = 0;    // length of the log with all appends that were sent
  int64_t logged_length_ = 0;  // length of the log with all appends that were stored
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_SESSION_TURN_H_
