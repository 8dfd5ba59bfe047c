// RedisWitness: detects that a Redis server has lost a session store or a part of it, or serves
// another store in its place.
//
// Redis does not detect flipped bits in its append-only file and the manifest of that file. With
// such damage, it can start with an empty database, with an older state, or with the data in
// another database. A front without a witness could see only the last of these three cases. So a
// front remembers the id of the store and its number of changes, in memory and in a local file. At
// each new connection, it compares them with the server's.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_WITNESS_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_WITNESS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "service/store/redis_link.h"
#include "service/store/store_witness.h"

namespace tidepool::service {

// Thread-compatible.
class RedisWitness {
 public:
  // Remembers the store in the file PATH-commits. Several fronts may share this file. If `path` is
  // empty, or the file cannot be written, the store is remembered only in memory.
  RedisWitness(const std::string& path, int database);

  // Compares the server with the remembered store. If the store on the server has no id, gives it
  // one. Returns one line for each fault that was not known before this connection. UNAVAILABLE if
  // the connection broke.
  absl::StatusOr<std::vector<std::string>> Check(RedisLink* link, absl::Time now);

  // Remembers the state that the store has now. If Check has reported the remembered store as lost,
  // that store stays remembered until the store on the server changes. Returns faults like Check,
  // because the database may have been emptied in the meantime.
  absl::StatusOr<std::vector<std::string>> Remember(RedisLink* link, absl::Time now);

  // Returns all faults that the last Check has found, and the losses that were recorded earlier.
  std::vector<std::string> Faults() const;

 private:
  // The fields of the hash `store`, and the number of sessions.
  struct Marker {
    std::string id;  // empty: there is no store
    std::optional<int64_t> database;
    std::optional<int64_t> commits;
    int64_t sessions = 0;
    bool exists = false;  // the hash exists, or its key has a value of another type
  };
  static absl::StatusOr<Marker> Read(RedisLink* link);
  absl::StatusOr<Marker> ReadOrMake(RedisLink* link) const;
  // Compares the marker with known_.
  absl::Status Compare(RedisLink* link, const Marker& marker, absl::Time now);
  // Requires: the marker belongs to the store in known_.
  absl::Status CompareCommits(RedisLink* link, const Marker& marker, absl::Time now);
  // Looks for parts of this store in the other databases of the server.
  absl::Status CheckDatabases(RedisLink* link, const Marker& marker);
  absl::Status LoadLosses(RedisLink* link);

  const int database_;
  StoreWitness file_;
  std::optional<WitnessedCommit> known_;
  Marker checked_;                   // the marker at the last Check
  std::vector<std::string> losses_;  // as they are stored on the server, oldest first
  std::vector<std::string> faults_;  // found by the last Check
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_WITNESS_H_
