// SessionStore: the durable token log of every session. The front is its only writer.
//
// A turn starts with BeginTurn, which takes the lease and reads the log. Append follows any number
// of times: the first call has the turn's input, the last one its finish_reason. If nothing was
// appended, ReleaseLease ends the turn, which then leaves no trace. The log always has everything
// that a client has received.
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
  int64_t epoch = 0;  // of the last lease; Replace raises it too
  // Describes the damage of a damaged session. Then only session_id is set. Only List returns such
  // a session; every other call ends with DATA_LOSS.
  std::string damage;
};

// The numerics_id of a turn whose workers had different ones.
inline constexpr absl::string_view kSeveralNumerics = "several";

struct StoredTurn {
  std::string request_id;
  int64_t start = 0;         // of the turn's input in the log
  int64_t output_start = 0;  // of its output
  int64_t end = 0;
  std::vector<StoredMessage> messages;  // CHAT: its input
  std::string answer;                   // the text of its output
  TurnFinish finish = TurnFinish::kRunning;
  // As in TurnStart and AppendRequest. Empty: unknown, because an older program wrote the turn.
  std::string body_digest;
  std::string numerics_id;

  friend bool operator==(const StoredTurn&, const StoredTurn&) = default;
};

// The message that a CHAT session's turn adds after its input.
inline StoredMessage AnswerMessage(const StoredTurn& turn) {
  return {.role = "assistant", .content = turn.answer};
}

struct SessionLogData {
  SessionInfo info;
  std::vector<int32_t> token_ids;
  std::vector<StoredTurn> turns;
};

// For readers: if the front of a turn has died, the turn has ended, although its state is still
// running.
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
  int64_t epoch = 0;   // of the lease; every later call must have it
  SessionLogData log;  // the current log; its last turn is kRunning if it continues
};

// The start of a turn, in its first Append.
struct TurnStart {
  std::string request_id;
  SessionKind kind = SessionKind::kTokens;
  // First truncates the log to this length, which is its whole length unless the template rewrote
  // earlier turns.
  int64_t kept = 0;
  std::vector<int32_t> input_ids;       // appended to the kept tokens
  std::vector<StoredMessage> messages;  // CHAT
  // Digest of everything in the request that affects the response. A request with another digest is
  // a different request.
  std::string body_digest;
};

struct AppendRequest {
  std::string session_id;
  int64_t epoch = 0;
  int64_t expected_length = 0;  // of the log before this append, and before a cut by `begin`
  std::optional<TurnStart> begin;
  std::vector<int32_t> output_ids;
  std::string output_text;
  // Every value except kRunning ends the turn and releases the lease.
  TurnFinish finish = TurnFinish::kRunning;
  // numerics_id of the workers that produced the turn's output so far; empty: unchanged.
  std::string numerics_id;
};

struct SessionPage {
  std::vector<SessionInfo> sessions;
  std::string next_page_token;  // empty: the last page
};

// Thread-safe. Every call returns at once; `done` runs later on the store's thread and must not
// block. Calls take effect in order. Every call can fail with
//  - RESOURCE_EXHAUSTED: the disk is full;
//  - DATA_LOSS: stored data is damaged; the message names the session if only one is affected;
//  - UNAVAILABLE: the store is closed or unavailable.
class SessionStore {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;
  using DoneStatus = std::function<void(absl::Status)>;

  // Completes all earlier calls.
  virtual ~SessionStore() = default;

  // Registers a listener for whether the store is writable (see StoreHealth::Listen). UNAVAILABLE:
  // its server is unavailable, or its file is missing.
  virtual void OnHealth(StoreHealth::Listener listener) = 0;

  // ALREADY_EXISTS: the id is taken, by any principal; RESOURCE_EXHAUSTED: the principal has
  // reached the limit.
  virtual void Create(NewSession session, Done<SessionInfo> done) = 0;
  // NOT_FOUND: unknown session, or it belongs to another principal. Unset principal: any.
  virtual void Get(std::optional<std::string> principal, std::string session_id,
                   Done<SessionLogData> done) = 0;
  // Newest first. Unset principal: all. INVALID_ARGUMENT: page_token did not come from List.
  virtual void List(std::optional<std::string> principal, int page_size, std::string page_token,
                    Done<SessionPage> done) = 0;
  // NOT_FOUND; ABORTED: a turn holds the lease.
  virtual void Delete(std::string principal, std::string session_id, DoneStatus done) = 0;
  virtual void Count(Done<int64_t> done) = 0;

  // Deletes up to `most` sessions that were not changed for `age` and have no running turn. Returns
  // their number.
  virtual void Expire(absl::Duration age, int64_t most, Done<int64_t> done) = 0;
  // Returns faults of the store itself, one line each. CheckSession checks the contents of readable
  // sessions.
  virtual void Verify(Done<std::vector<std::string>> done) = 0;

  // Writes a whole session, including its times but not its epoch. Running turns become CANCELLED.
  // Errors as in Create.
  virtual void Insert(SessionLogData session, Done<SessionInfo> done) = 0;
  // Replaces the session. NOT_FOUND: unknown session, or it belongs to another principal; ABORTED:
  // a turn holds the lease, or began since info.epoch was read.
  virtual void Replace(SessionLogData session, Done<SessionInfo> done) = 0;

  // Takes the lease with a new epoch; the same request can take it over. The log's last turn
  // continues, without a `begin`, if it has this request_id and is running or was cancelled at the
  // end of the log. Otherwise, if it is running, it is cancelled. NOT_FOUND; ABORTED: a turn of
  // another request_id holds the lease; ALREADY_EXISTS: this request_id has a turn with another
  // body_digest, in the log or holding the lease, which is not affected.
  virtual void BeginTurn(TurnRequest turn, Done<OpenTurn> done) = 0;
  // ABORTED: the lease was lost (another epoch, or it expired and another turn took it).
  virtual void RenewLease(std::string session_id, int64_t epoch, absl::Duration lease,
                          DoneStatus done) = 0;
  // For a turn without an append. Does nothing if the epoch is not current.
  virtual void ReleaseLease(std::string session_id, int64_t epoch, DoneStatus done) = 0;
  // Compare-and-set. ABORTED, and nothing was written: the epoch is not current, or the log does
  // not have expected_length.
  virtual void Append(AppendRequest append, DoneStatus done) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_STORE_H_
