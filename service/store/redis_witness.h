// RedisWitness: notices that a Redis server has lost a session store, a part of it, or serves
// another one in its place.
//
// Redis does not check its append-only file and its manifest for flipped bits. After such damage it
// can start with an empty database, with an older state, or with the data in another database. Only
// the last can be seen from Redis alone. So a front remembers the id of the store and the number of
// changes, in memory and in a file of its machine, and compares them at each connection.
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
  // Remembers the store in the file PATH-commits, which several fronts may share. Without a file,
  // or if it cannot be written, only in memory.
  RedisWitness(const std::string& path, int database);

  // Compares the server with what is remembered. Gives a store that has no id one. Returns a line
  // for each fault that was not known before this connection. UNAVAILABLE: the connection broke.
  absl::StatusOr<std::vector<std::string>> Check(RedisLink* link, absl::Time now);

  // Remembers the store as it is now. If Check reported the remembered store as lost, that store
  // stays remembered until the present one is changed. Returns faults as Check does: the database
  // can have been emptied.
  absl::StatusOr<std::vector<std::string>> Remember(RedisLink* link, absl::Time now);

  // All faults of the last Check, and the losses of earlier times.
  std::vector<std::string> Faults() const;

 private:
  // The fields of the store's hash, and its number of sessions.
  struct Marker {
    std::string id;  // empty: there is no store
    std::optional<int64_t> database;
    std::optional<int64_t> commits;
    int64_t sessions = 0;
    bool exists = false;  // there is a hash, or another value under its key
  };
  static absl::StatusOr<Marker> Read(RedisLink* link);
  absl::StatusOr<Marker> ReadOrMake(RedisLink* link) const;
  // Compares the marker with `known_`.
  absl::Status Compare(RedisLink* link, const Marker& marker, absl::Time now);
  // Requires: the marker is of the store that is known.
  absl::Status CompareCommits(RedisLink* link, const Marker& marker, absl::Time now);
  // Looks for parts of this store in the server's other databases.
  absl::Status CheckDatabases(RedisLink* link, const Marker& marker);
  absl::Status LoadLosses(RedisLink* link);

  const int database_;
  StoreWitness file_;
  std::optional<WitnessedCommit> known_;
  Marker checked_;                   // of the last Check
  std::vector<std::string> losses_;  // as the server keeps them, oldest first
  std::vector<std::string> faults_;  // of the last Check
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_WITNESS_H_
