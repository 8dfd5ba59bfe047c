// StoreWitness: a small file that records the last commit of a store. SQLite drops the rest of a
// damaged write-ahead log without an error. The file then has more commits than the store.
//
// It is written after each commit, before the commit is acknowledged, and is not synced to the
// disk. After kill -9 it never has more commits than the store. After a power loss it can have more
// only with Durability::kProcess, and then these commits are lost.
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

// Converts to and from the only line of the file. None: the line is damaged.
std::string FormatWitness(const WitnessedCommit& commit);
std::optional<WitnessedCommit> ParseWitness(absl::string_view line);

// Thread-compatible.
class StoreWitness {
 public:
  // For the store at `store_path`. A store in memory has no file. Opens and writes nothing yet.
  explicit StoreWitness(absl::string_view store_path);
  ~StoreWitness();
  StoreWitness(const StoreWitness&) = delete;
  StoreWitness& operator=(const StoreWitness&) = delete;

  // STORE-commits.
  const std::string& path() const { return path_; }
  // None: there is no such file, or it is damaged.
  std::optional<WitnessedCommit> Read() const;
  // Best effort: on a full disk, the file keeps the commit of an earlier call.
  void Write(const WitnessedCommit& commit);

 private:
  std::string path_;
  int file_ = -1;  // opened by the first Write
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_STORE_WITNESS_H_
