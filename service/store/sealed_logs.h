// SealedLogs: the logs of sessions in a SQLite store, chunks and turns, with their hash chains.
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

// Thread-compatible. The caller has a transaction open, and has checked the seal of each row that
// it passes. Functions that change a log update the row's counts and hashes; the caller saves the
// row. Whatever is read is compared with its hash before it is used or hashed again. DATA_LOSS: a
// chunk or a turn does not match its hash, or SQLite cannot read it.
class SealedLogs {
 public:
  // Requires: the schema is there. The connection outlives this object.
  static absl::StatusOr<std::unique_ptr<SealedLogs>> Open(const SqliteDb& db);

  // Reads and checks the whole log.
  absl::Status Read(const SessionRow& row, SessionLogData* log);

  // Appends tokens and text to the log.
  absl::Status AddOutput(SessionRow* row, absl::Span<const int32_t> tokens, absl::string_view text);
  // Writes a whole log into an empty session. Running turns become CANCELLED.
  absl::Status AddLog(SessionRow* row, const SessionLogData& session);
  // Empties the log.
  absl::Status Clear(SessionRow* row);
  // Deletes the log of a session with this key, damaged or not.
  absl::Status Delete(int64_t key);

  absl::Status StartTurn(SessionRow* row, const TurnStart& begin);
  // Continues the last turn if it has this request_id, and is running or was cancelled at the end
  // of the log. False: it does not continue. `log` is what Read returned.
  absl::StatusOr<bool> ReopenTurn(SessionRow* row, const SessionLogData& log,
                                  absl::string_view request_id);
  // Updates the last turn if it is running. Empty numerics_id: unchanged.
  absl::Status UpdateRunningTurn(SessionRow* row, TurnFinish finish, absl::string_view numerics_id);

  // Computes the hashes of a log that an older version wrote. DATA_LOSS: its parts do not fit
  // together.
  absl::Status Seal(SessionRow* row);

 private:
  SealedLogs(ChunkTable chunks, TurnTable turns);

  absl::Status ReadTokens(const SessionRow& row, std::vector<int32_t>* tokens);
  absl::Status ReadTurns(const SessionRow& row, std::vector<StoredTurn>* turns);
  // The last chunk that starts before `start`. If there is none, an empty chunk with the hash of
  // the log's start.
  absl::StatusOr<ChunkRow> ChunkBefore(const SessionRow& row, int64_t start);
  absl::Status Cut(SessionRow* row, int64_t length);
  // Computes the hashes of the chunks from `start` on.
  absl::Status Rechain(SessionRow* row, int64_t start);
  absl::Status AddTurn(SessionRow* row, const StoredTurn& turn);
  // The last turn, and the hash before it. None: there are no turns.
  absl::StatusOr<std::optional<TurnRow>> LastTurn(const SessionRow& row, Hash128* before);
  absl::Status ChangeLastTurn(SessionRow* row, const Hash128& before, TurnRow* turn);

  ChunkTable chunks_;
  TurnTable turns_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SEALED_LOGS_H_
