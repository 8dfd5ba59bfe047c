// The hashes that a SQLite store keeps of its rows (row_hash.h).
//
// Chunks and turns form two chains in each session: a row's hash covers the session's id, all rows
// before it and the row itself. A session's seal covers its row and the last hash of both chains.
// The ledger (store_ledger.h) has the sum of all seals.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_SEALS_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_SEALS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "service/store/chunk_table.h"
#include "service/store/row_hash.h"
#include "service/store/session_table.h"
#include "service/store/turn_table.h"

namespace tidepool::service {

// Covers every column except lease_until_us, which means nothing to another process.
Hash128 SealOf(const SessionRow& row);

// DATA_LOSS: the row does not match its seal, or a column has the wrong type.
absl::Status CheckSeal(const SessionRow& row);

// The hash before a session's first chunk or turn.
Hash128 ChunksStart(absl::string_view session_id);
Hash128 TurnsStart(absl::string_view session_id);

// The hash of a row, from the hash of the row before it.
Hash128 HashOf(const Hash128& before, const ChunkRow& chunk);
Hash128 HashOf(const Hash128& before, int64_t number, const TurnRow& row);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_SEALS_H_
