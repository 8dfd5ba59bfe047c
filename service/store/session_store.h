// SessionStore: stores the token log of every session durably. Only fronts write it.
//
// A turn starts with BeginTurn, which reads the log and takes the lease, the exclusive right to
// append for a limited time. Then Append is called any number of times. The first call contains the
// turn's input, and the last one its finish_reason. If nothing is appended, ReleaseLease ends the
// turn, and the log does not change. Everything that a client has received is always in the log.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_STORE_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/store/store_health.h"

namespace tidepool::service {

// These numbers are stored, so never change one.
enum class SessionKind : uint8_t { kNew = 0, kTokens = 1, kChat = 2 };
enum class TurnFinish : uint8_t {
  kRunning = 0,
  kStop = 1,
  kLength = 2,
  kStopString = 3,
  kCancelled = 4
};

struct StoredMessage {
  std::string role;
  std::string content;
  std::optional<std::string> name;
  std::optional<std::string> tool_call_id;
  std::optional<std::string> tool_calls_json;
  std::optional<std::string> reasoning_content;

  friend bool operator==(const StoredMessage&, const StoredMessage&) = default;
};

struct SessionInfo {
  std::string session_id;
  std::string principal;  // the owner
  std::string model;
  std::string model_digest;
  SessionKind kind = SessionKind::kNew;
  absl::Time create_time;
  absl::Time update_time;
  int64_t token_count = 0;
  int32_t turn_count = 0;
  bool busy = false;  // a lease is held and has not expired
  int64_t epoch = 0;  // number of the last lease; Replace also increases it
  // Empty if the session is undamaged. In a damaged session, this describes the damage, and
  // session_id is the only other field that is set. Only List returns a damaged session. All other
  // calls end with DATA_LOSS.
  std::string damage;
};

// The numerics_id of a turn whose workers had different numerics_ids.
inline constexpr absl::string_view kSeveralNumerics = "several";

struct StoredTurn {
  std::string request_id;
  int64_t start = 0;         // where the turn's input begins in the log
  int64_t output_start = 0;  // where the turn's output begins
  int64_t end = 0;
  std::vector<StoredMessage> messages;  // the turn's input in a CHAT session
  std::string response;                 // the text of the turn's output
  TurnFinish finish = TurnFinish::kRunning;
  // As in TurnStart and AppendRequest. Empty: not known, because an older program has written the
  // turn.
  std::string body_digest;
  std::string numerics_id;

  friend bool operator==(const StoredTurn&, const StoredTurn&) = default;
};

// Returns the message that a turn of a CHAT session adds after its input.
inline StoredMessage ResponseMessage(const StoredTurn& turn) {
  return {.role = "assistant", .content = turn.response};
}

struct SessionLogData {
  SessionInfo info;
  std::vector<int32_t> token_ids;
  std::vector<StoredTurn> turns;
};

// For code that only reads a session: if the front of a turn has died, the stored turn is still
// marked as running. Marks it as cancelled in `log`.
inline void EndAbandonedTurn(SessionLogData* log) {
  if (log->info.busy || log->turns.empty()) return;
  TurnFinish& finish = log->turns.back().finish;
  if (finish == TurnFinish::kRunning) finish = TurnFinish::kCancelled;
}

struct NewSession {
  std::string session_id;
  std::string principal;
  std::string model;
  std::string model_digest;
};

struct TurnRequest {
  std::string session_id;
  std::string principal;
  std::string request_id;
  absl::Duration lease = absl::Seconds(10);
  std::string body_digest;  // as in TurnStart; empty: not compared
};

struct OpenTurn {
  int64_t epoch = 0;   // the number of the lease; every later call must pass it
  SessionLogData log;  // the current log; if the last turn continues, its finish is kRunning
};

// The beginning of a turn. It is part of the turn's first Append.
struct TurnStart {
  std::string request_id;
  SessionKind kind = SessionKind::kTokens;
  // The log is first truncated to this length. Usually, this is the length of the log, so nothing
  // is removed. It is less if the template has rendered earlier turns differently.
  int64_t kept = 0;
  std::vector<int32_t> input_ids;       // appended to the tokens that are kept
  std::vector<StoredMessage> messages;  // the turn's input in a CHAT session
  // Digest of everything in the request that influences the response. Two requests with different
  // digests are different requests.
  std::string body_digest;
};

struct AppendRequest {
  std::string session_id;
  int64_t epoch = 0;
  // length of the log before this append, and before `begin` truncates it
  int64_t expected_length = 0;
  std::optional<TurnStart> begin;
  std::vector<int32_t> output_ids;
  std::string output_text;
  // Every value except kRunning ends the turn and releases the lease.
  TurnFinish finish = TurnFinish::kRunning;
  // The numerics_id of the workers that have produced the turn's output until now. Empty: it has
  // not changed.
  std::string numerics_id;
};

struct SessionPage {
  std::vector<SessionInfo> sessions;
  std::string next_page_token;  // empty: this is the last page
};

// Thread-safe. Every call returns at once. Later, `done` is called on the store's thread, and must
// not block. Calls take effect in order. Every call can fail with these errors:
//  - RESOURCE_EXHAUSTED: the disk is full;
//  - DATA_LOSS: stored data is damaged; if only one session is affected, the message names it;
//  - UNAVAILABLE: the store is closed or unavailable.
class SessionStore {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;
  using DoneStatus = std::function<void(absl::Status)>;

  // Waits until all earlier calls are complete.
  virtual ~SessionStore() = default;

  // Registers a function that learns whether the store can be written (see StoreHealth::Listen).
  // The function gets UNAVAILABLE if the store's server is unavailable or the store's file is
  // missing.
  virtual void OnHealth(StoreHealth::Listener listener) = 0;

  // ALREADY_EXISTS if any principal has a session with this id. RESOURCE_EXHAUSTED if the principal
  // has reached its maximum number of sessions.
  virtual void Create(NewSession session, Done<SessionInfo> done) = 0;
  // NOT_FOUND if the session does not exist or belongs to another principal. If `principal` is not
  // set, the session may belong to anyone.
  virtual void Get(std::optional<std::string> principal, std::string session_id,
                   Done<SessionLogData> done) = 0;
  // The newest session comes first. If `principal` is not set, lists the sessions of all
  // principals. INVALID_ARGUMENT if page_token is not from an earlier List.
  virtual void List(std::optional<std::string> principal, int page_size, std::string page_token,
                    Done<SessionPage> done) = 0;
  // NOT_FOUND if the session does not exist or belongs to another principal. ABORTED if a turn
  // holds the lease.
  virtual void Delete(std::string principal, std::string session_id, DoneStatus done) = 0;
  virtual void Count(Done<int64_t> done) = 0;

  // Deletes up to `most` sessions that were not changed for `age` and have no running turn. Returns
  // their number.
  virtual void Expire(absl::Duration age, int64_t most, Done<int64_t> done) = 0;
  // Returns the faults of the store itself, one line each. It does not check the contents of
  // sessions that can be read. For that, use CheckSession.
  virtual void Verify(Done<std::vector<std::string>> done) = 0;

  // Writes a whole session. The session keeps its times. Its epoch is not copied. Turns that are
  // running become CANCELLED. Errors are the same as for Create.
  virtual void Insert(SessionLogData session, Done<SessionInfo> done) = 0;
  // Replaces a session. NOT_FOUND if the session does not exist or belongs to another principal.
  // ABORTED if a turn holds the lease, or has begun since info.epoch was read.
  virtual void Replace(SessionLogData session, Done<SessionInfo> done) = 0;

  // Takes the lease, with a new epoch. If a turn of the same request holds the lease, the new turn
  // takes over this lease.
  //
  // A repeated request continues its turn, without a `begin`: the last turn in the log has this
  // request_id, and is running or was cancelled at the end of the log. Otherwise, a last turn that
  // is running becomes cancelled.
  //
  // Errors: NOT_FOUND as in Delete. ABORTED if a turn with another request_id holds the lease.
  // ALREADY_EXISTS if a turn with this request_id, in the log or as holder of the lease, has
  // another body_digest. That turn is not changed.
  virtual void BeginTurn(TurnRequest turn, Done<OpenTurn> done) = 0;
  // ABORTED if the lease is lost: `epoch` is not the session's current epoch, or the lease was
  // released.
  virtual void RenewLease(std::string session_id, int64_t epoch, absl::Duration lease,
                          DoneStatus done) = 0;
  // Ends a turn that has appended nothing. Does nothing if the epoch is not the current one.
  virtual void ReleaseLease(std::string session_id, int64_t epoch, DoneStatus done) = 0;
  // Appends only if the epoch is the current one and the log has the length expected_length.
  // Otherwise returns ABORTED and writes nothing.
  virtual void Append(AppendRequest append, DoneStatus done) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_STORE_H_
