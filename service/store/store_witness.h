// StoreWitness: a small file beside the SQLite store that knows its last commit. SQLite drops the
// rest of a damaged write-ahead log without a word; this file then knows more commits than the
// store has.
//
// It is written after each commit, before the commit is acknowledged, and never waits for the disk.
// So it is never ahead of what a killed process committed. A power cut can leave it ahead only
// where commits did not wait for the disk either (Durability::kProcess), and then they are lost
// indeed.
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

// The file's one line, and back. None: it is not such a line, or it is damaged.
std::string FormatWitness(const WitnessedCommit& commit);
std::optional<WitnessedCommit> ParseWitness(absl::string_view line);

// Thread-compatible.
class StoreWitness {
 public:
  // Of the store at `store_path`; one in memory has none. Nothing is opened or written yet.
  explicit StoreWitness(absl::string_view store_path);
  ~StoreWitness();
  StoreWitness(const StoreWitness&) = delete;
  StoreWitness& operator=(const StoreWitness&) = delete;

  // STORE-commits.
  const std::string& path() const { return path_; }
  // None: there is no such file, or it is damaged.
  std::optional<WitnessedCommit> Read() const;
  // Best effort: without room for it, the file stays as it is, and knows less.
  void Write(const WitnessedCommit& commit);

 private:
  std::string path_;
  int file_ = -1;  // of the first Write
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_STORE_WITNESS_H_
