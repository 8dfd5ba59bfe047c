// StoreWitness: a small file that records the last commit of a store. It is needed because SQLite
// ignores the rest of a damaged write-ahead log without an error. Then the witness file has a
// higher number of commits than the store.
//
// The file is written after each commit, before the commit is acknowledged. It is not synced to the
// disk. After kill -9, its number of commits is never higher than the store's. After a power loss,
// its number can be higher only with Durability::kProcess, and then these commits are really lost.
#ifndef TIDEPOOL_SERVICE_STORE_STORE_WITNESS_H_
#define TIDEPOOL_SERVICE_STORE_STORE_WITNESS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

struct WitnessedCommit {
  std::string store_id;
  int64_t commits = 0;
  int64_t sessions = 0;

  friend bool operator==(const WitnessedCommit&, const WitnessedCommit&) = default;
};

// Convert to and from the only line of the file. ParseWitness returns nullopt if the line is
// damaged.
std::string FormatWitness(const WitnessedCommit& commit);
std::optional<WitnessedCommit> ParseWitness(absl::string_view line);

// Thread-compatible.
class StoreWitness {
 public:
  // `store_path` is the path of the store. A store in memory has no witness file. The constructor
  // opens and writes nothing.
  explicit StoreWitness(absl::string_view store_path);
  ~StoreWitness();
  StoreWitness(const StoreWitness&) = delete;
  StoreWitness& operator=(const StoreWitness&) = delete;

  // Returns the path STORE-commits.
  const std::string& path() const { return path_; }
  // Returns nullopt if the file does not exist or is damaged.
  std::optional<WitnessedCommit> Read() const;
  // Writes the file. Ignores errors. For example, on a full disk the file keeps the commit of an
  // earlier call.
  void Write(const WitnessedCommit& commit);

 private:
  std::string path_;
  int file_ = -1;  // opened by the first call of Write
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_STORE_WITNESS_H_
