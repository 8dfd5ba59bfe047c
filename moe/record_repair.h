// RecordRepair: rebuilds damaged records from the data that the file was made from. A rebuilt
// record is used from memory, and is also written back to the file.
#ifndef TIDEPOOL_MOE_RECORD_REPAIR_H_
#define TIDEPOOL_MOE_RECORD_REPAIR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "moe/policy/placement_policy.h"
#include "moe/record_reader.h"
#include "moe/record_writer.h"

namespace tidepool::moe {

struct RepairOptions {
  // Writes the original contents of a record into `record`, which is zeroed. If it fails, the error
  // is one clause with the reason. If empty, records cannot be rebuilt.
  std::function<absl::Status(ExpertRef expert, std::byte* record)> rebuild;
  // Receives messages for people. Called on several threads. May be empty.
  std::function<void(absl::string_view line)> note;
};

struct RepairStats {
  int64_t rebuilt = 0;  // records that were rebuilt
  // number of rebuilt records that could not be written back, so that each later read must rebuild
  // them again
  int64_t failed_writes = 0;
  int64_t lost = 0;  // current number of damaged records that cannot be rebuilt
};

// Engine thread only.
class RecordRepair {
 public:
  // `path` is the file that has the records now. If another file replaces it later, that file is
  // not changed.
  RecordRepair(const std::string& path, RepairOptions options);

  // Must be called if a read ended with DATA_LOSS. If it returns OK, read.into contains the record,
  // and the record has the hash read.hash. If the record cannot be rebuilt, returns DATA_LOSS; the
  // message says why the read failed and why the record cannot be rebuilt.
  absl::Status Repair(ExpertRef expert, const RecordRead& read, const absl::Status& damage);
  // Must be called if a read of this record succeeded. The record is then no longer lost.
  void NoteSound(int64_t ticket) {
    if (!lost_.empty()) lost_.erase(ticket);
  }

  RepairStats stats() const;

 private:
  absl::Status Rebuild(ExpertRef expert, const RecordRead& read) const;
  void Note(absl::string_view line) const {
    if (options_.note) options_.note(line);
  }

  const std::string path_;
  const RepairOptions options_;
  int64_t rebuilt_ = 0;
  bool noted_loss_ = false;
  std::set<int64_t> lost_;  // tickets of records that are lost: damaged, and not rebuilt
  std::unique_ptr<RecordWriter> writer_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_RECORD_REPAIR_H_
