// SessionTurn: one turn's hold on its session: the lease, the log as the turn found it, and what
// the turn appends to it. session_store.h says what a turn is.
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

// Loop only. It stays until the store has answered all of its calls, so that a lease that comes
// after Close is given back.
class SessionTurn : public std::enable_shared_from_this<SessionTurn> {
 public:
  // Who is told of it, on the loop, until Close.
  class Listener {
   public:
    virtual ~Listener() = default;
    // The lease is held, and log() and logged() are there. An error: it could not be taken, or the
    // request's turn was cut short since.
    virtual void OnTurn(absl::Status status) = 0;
    // The oldest append that was not told of yet is in the store.
    virtual void OnLogged() = 0;
    // The lease is lost, or an append failed: nothing more of this turn is kept.
    virtual void OnTurnLost(absl::Status status) = 0;
  };

  // All outlive it; the listener until Close.
  SessionTurn(Executor* loop, SessionStore* store, Listener* listener)
      : loop_(loop), store_(store), listener_(listener) {}

  // Takes the lease, and keeps it until the turn's end. The lease's length is set here.
  void Begin(TurnRequest request);
  // Session, epoch and expected_length are set here. Requires: OnTurn said OK; `begin` stands in
  // the first one, and only there.
  void Append(AppendRequest append);
  // Gives the lease back: the turn ends where its log stands, and leaves no trace without an
  // append.
  void Close();

  // As the turn found it: without the request's own turn, which is logged().
  const SessionLogData& log() const { return turn_.log; }
  // The request's turn, if the log has it already.
  const std::optional<LoggedTurn>& logged() const { return logged_; }
  // Whether its first append was sent, now or before it came again.
  bool begun() const { return begun_; }

 private:
  void OnBegun(const std::string& request_id, absl::StatusOr<OpenTurn> turn);
  void KeepLease();
  void OnAppended(absl::Status status, int64_t length);
  void GiveBack();

  Executor* const loop_;
  SessionStore* const store_;
  Listener* listener_;  // null once closed
  OpenTurn turn_;
  std::optional<LoggedTurn> logged_;
  bool lease_held_ = false;
  bool begun_ = false;
  bool finished_ = false;      // its last append was sent
  bool failed_ = false;        // an append did
  int64_t sent_length_ = 0;    // of the log, with all appends that were sent
  int64_t logged_length_ = 0;  // of the log, with those that are in the store
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_SESSION_TURN_H_
