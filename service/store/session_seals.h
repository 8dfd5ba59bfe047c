// The hashes with which a SQLite store detects damage to its rows (row_hash.h).
//
// The chunks of a session form a chain, and its turns form another one. The hash of a row in a
// chain covers the session's id, all rows before it, and the row itself. A session's seal is a hash
// that covers its row and the last hash of both chains. The ledger (store_ledger.h) contains the
// sum of all seals.
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

// The seal covers every column except lease_until_us, which has no meaning in another process.
Hash128 SealOf(const SessionRow& row);

// DATA_LOSS if the row does not match its seal, or if a column has the wrong type.
absl::Status CheckSeal(const SessionRow& row);

// Return the hash that comes before a session's first chunk or turn in the chain.
Hash128 ChunksStart(absl::string_view session_id);
Hash128 TurnsStart(absl::string_view session_id);

// Return the hash of a row. `before` is the hash of the row before it.
Hash128 HashOf(const Hash128& before, const ChunkRow& chunk);
Hash128 HashOf(const Hash128& before, int64_t number, const TurnRow& row);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_SEALS_H_
