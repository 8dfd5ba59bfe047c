// SealedLogs: the logs of sessions in a SQLite store. A log consists of chunks and turns, which
// have hash chains (session_seals.h).
#ifndef TIDEPOOL_SERVICE_STORE_SEALED_LOGS_H_
#define TIDEPOOL_SERVICE_STORE_SEALED_LOGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "service/store/chunk_table.h"
#include "service/store/session_store.h"
#include "service/store/session_table.h"
#include "service/store/sqlite_db.h"
#include "service/store/turn_table.h"

namespace tidepool::service {

// Thread-compatible. The caller must have a transaction open, and must have checked the seal of
// each row that it passes. Functions that change a log also change the counts and hashes in the
// row, and the caller must save the row. Data that is read is always compared with its hash before
// it is used or hashed again. DATA_LOSS if a chunk or a turn does not match its hash, or if SQLite
// cannot read it.
class SealedLogs {
 public:
  // Requires: the tables exist. The connection must outlive this object.
  static absl::StatusOr<std::unique_ptr<SealedLogs>> Open(const SqliteDb& db);

  // Reads and checks the whole log.
  absl::Status Read(const SessionRow& row, SessionLogData* log);

  // Appends tokens and text to the log.
  absl::Status AddOutput(SessionRow* row, absl::Span<const int32_t> tokens, absl::string_view text);
  // Writes a whole log into an empty session. Turns that are running become CANCELLED.
  absl::Status AddLog(SessionRow* row, const SessionLogData& session);
  // Empties the log.
  absl::Status Clear(SessionRow* row);
  // Deletes the log of the session with this key, even if it is damaged.
  absl::Status Delete(int64_t key);

  absl::Status StartTurn(SessionRow* row, const TurnStart& begin);
  // Continues the last turn if it has this request_id, and is either running, or was cancelled at
  // the end of the log. Otherwise returns false. `log` is the result of Read.
  absl::StatusOr<bool> ReopenTurn(SessionRow* row, const SessionLogData& log,
                                  absl::string_view request_id);
  // Updates the last turn if it is running. An empty numerics_id changes nothing.
  absl::Status UpdateRunningTurn(SessionRow* row, TurnFinish finish, absl::string_view numerics_id);

  // Computes the hashes of a log that an older version has written. DATA_LOSS if the parts of the
  // log contradict each other.
  absl::Status Seal(SessionRow* row);

 private:
  SealedLogs(ChunkTable chunks, TurnTable turns);

  absl::Status ReadTokens(const SessionRow& row, std::vector<int32_t>* tokens);
  absl::Status ReadTurns(const SessionRow& row, std::vector<StoredTurn>* turns);
  // Returns the last chunk that starts before `start`. If there is none, returns an empty chunk
  // with the hash ChunksStart.
  absl::StatusOr<ChunkRow> ChunkBefore(const SessionRow& row, int64_t start);
  absl::Status Cut(SessionRow* row, int64_t length);
  // Computes the hashes of the chunks from `start` on.
  absl::Status Rechain(SessionRow* row, int64_t start);
  absl::Status AddTurn(SessionRow* row, const StoredTurn& turn);
  // Returns the last turn. Sets `before` to the hash before it. Returns nullopt if there are no
  // turns.
  absl::StatusOr<std::optional<TurnRow>> LastTurn(const SessionRow& row, Hash128* before);
  absl::Status ChangeLastTurn(SessionRow* row, const Hash128& before, TurnRow* turn);

  ChunkTable chunks_;
  TurnTable turns_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SEALED_LOGS_H_
