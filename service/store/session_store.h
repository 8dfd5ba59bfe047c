// SessionStore: the durable token log of every session. The front is its only writer.
//
// A turn is: BeginTurn (takes the lease and reads the log), any number of Append (the first one
// brings the turn's input, the last one its finish_reason), or ReleaseLease when nothing was
// appended. So a turn that delivered no token leaves no trace, and the log always holds what a
// client has received.
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

// The numbers are stored: never change one.
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

  friend bool operator==(const StoredMessage&, const StoredMessage&) = default;
};

struct SessionInfo {
  std::string session_id;
  std::string principal;  // whose it is
  std::string model;
  std::string model_digest;
  SessionKind kind = SessionKind::kNew;
  absl::Time create_time;
  absl::Time update_time;
  int64_t token_count = 0;
  int32_t turn_count = 0;
  bool busy = false;  // a lease is held and has not expired
  int64_t epoch = 0;  // of the last lease; Replace raises it too
  // Not empty: what is stored is damaged, as this says, and only session_id is to be trusted. Of
  // List alone: every other call ends with DATA_LOSS.
  std::string damage;
};

// The numerics_id of a turn that workers of different ones have made.
inline constexpr absl::string_view kSeveralNumerics = "several";

struct StoredTurn {
  std::string request_id;
  int64_t start = 0;         // of the turn's input in the log
  int64_t output_start = 0;  // of its output
  int64_t end = 0;
  std::vector<StoredMessage> messages;  // CHAT: its input
  std::string answer;                   // the text of its output
  TurnFinish finish = TurnFinish::kRunning;
  // As TurnStart's and AppendRequest's; empty: not known, for an older program wrote it.
  std::string body_digest;
  std::string numerics_id;

  friend bool operator==(const StoredTurn&, const StoredTurn&) = default;
};

// The message that a CHAT session's turn adds behind its input.
inline StoredMessage AnswerMessage(const StoredTurn& turn) {
  return {.role = "assistant", .content = turn.answer};
}

struct SessionLogData {
  SessionInfo info;
  std::vector<int32_t> token_ids;
  std::vector<StoredTurn> turns;
};

// For readers: a turn whose front is gone ended where it stands, though nobody has said so yet.
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
  std::string body_digest;  // as TurnStart's; empty: not compared
};

struct OpenTurn {
  int64_t epoch = 0;   // of the lease: every later call names it
  SessionLogData log;  // as it stands now; its last turn is kRunning if it goes on
};

// What the first Append of a turn brings.
struct TurnStart {
  std::string request_id;
  SessionKind kind = SessionKind::kTokens;
  // The log is cut to this length first: its whole length, unless the template rewrote earlier
  // turns.
  int64_t kept = 0;
  std::vector<int32_t> input_ids;       // behind what was kept
  std::vector<StoredMessage> messages;  // CHAT
  // Of all in the request that its turn's answer follows from: what has another one is another
  // request.
  std::string body_digest;
};

struct AppendRequest {
  std::string session_id;
  int64_t epoch = 0;
  int64_t expected_length = 0;  // of the log before this append, and before a cut by `begin`
  std::optional<TurnStart> begin;
  std::vector<int32_t> output_ids;
  std::string output_text;
  // Anything but kRunning ends the turn and gives the lease back.
  TurnFinish finish = TurnFinish::kRunning;
  // Of the workers that made the turn's output up to here; empty: as it was.
  std::string numerics_id;
};

struct SessionPage {
  std::vector<SessionInfo> sessions;
  std::string next_page_token;  // empty: the last page
};

// Thread-safe. Every call returns at once; `done` runs later on the store's own thread and must not
// block. Calls take effect in the order in which they were made. Any of them can end with
// RESOURCE_EXHAUSTED (the disk is full), DATA_LOSS (what is stored is damaged; the message names
// the session, where it is one session's), or UNAVAILABLE (closed, or the store is away).
class SessionStore {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;
  using DoneStatus = std::function<void(absl::Status)>;

  // Runs the calls made before, then ends.
  virtual ~SessionStore() = default;

  // Who is told whether the store can be written, as StoreHealth::Listen says. UNAVAILABLE: its
  // server is away, or its file is gone.
  virtual void OnHealth(StoreHealth::Listener listener) = 0;

  // ALREADY_EXISTS: the id is taken, by whomever; RESOURCE_EXHAUSTED: the principal has as many as
  // the store allows.
  virtual void Create(NewSession session, Done<SessionInfo> done) = 0;
  // NOT_FOUND: no such session, or another principal's; unset: whoever's it is.
  virtual void Get(std::optional<std::string> principal, std::string session_id,
                   Done<SessionLogData> done) = 0;
  // Newest first; unset: of all principals. INVALID_ARGUMENT: page_token is not one of ours.
  virtual void List(std::optional<std::string> principal, int page_size, std::string page_token,
                    Done<SessionPage> done) = 0;
  // NOT_FOUND; ABORTED: a turn holds the lease.
  virtual void Delete(std::string principal, std::string session_id, DoneStatus done) = 0;
  virtual void Count(Done<int64_t> done) = 0;

  // Deletes at most so many sessions that nobody changed for `age` and no turn holds; tells how
  // many.
  virtual void Expire(absl::Duration age, int64_t most, Done<int64_t> done) = 0;
  // What does not hold of the store itself, a line for each; what holds of a session that can be
  // read is CheckSession's.
  virtual void Verify(Done<std::vector<std::string>> done) = 0;

  // Writes a whole session as it is told, its times included and its epoch set aside; running turns
  // become CANCELLED. Errors as of Create.
  virtual void Insert(SessionLogData session, Done<SessionInfo> done) = 0;
  // Puts `session` in the place of what is there. NOT_FOUND: no such session, or another
  // principal's; ABORTED: a turn holds the lease, or began since info.epoch was read.
  virtual void Replace(SessionLogData session, Done<SessionInfo> done) = 0;

  // Takes the lease with a new epoch. NOT_FOUND; ABORTED: another request_id's turn holds it;
  // ALREADY_EXISTS: this request_id's turn, in the log or holding the lease, has another body_digest,
  // and goes on as it was. The same request takes the lease over. The log's last turn goes on, without a `begin`, if it is of this
  // request_id and still runs or was cancelled at the end of the log; else, if it runs, it is
  // cancelled.
  virtual void BeginTurn(TurnRequest turn, Done<OpenTurn> done) = 0;
  // ABORTED: the lease was lost (another epoch, or it expired and was taken).
  virtual void RenewLease(std::string session_id, int64_t epoch, absl::Duration lease,
                          DoneStatus done) = 0;
  // Of a turn without an append. An epoch that is not current changes nothing.
  virtual void ReleaseLease(std::string session_id, int64_t epoch, DoneStatus done) = 0;
  // Compare-and-set: ABORTED when the epoch is not current or the log is not of expected_length;
  // then nothing was written.
  virtual void Append(AppendRequest append, DoneStatus done) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_STORE_H_
