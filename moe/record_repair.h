// RecordRepair: rebuilds damaged records from the source that the file was made from. The record is
// used from memory, and written back to the file.
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
  // Fills a zeroed record with its original contents. Empty: records cannot be rebuilt. If it
  // fails, the error says why in one clause.
  std::function<absl::Status(ExpertRef expert, std::byte* record)> rebuild;
  // Receives notes for people. Called on several threads. May be empty.
  std::function<void(absl::string_view line)> note;
};

struct RepairStats {
  int64_t rebuilt = 0;  // records that were rebuilt
  // of these, records that could not be written back; each read rebuilds them again
  int64_t failed_writes = 0;
  int64_t lost = 0;  // current number of damaged records that cannot be rebuilt
};

// Engine thread only.
class RecordRepair {
 public:
  // `path` is the records' file, as it is now. If another file replaces it, that one is not
  // written.
  RecordRepair(const std::string& path, RepairOptions options);

  // Call it if a read ended with DATA_LOSS. OK: read.into contains the record, with the hash
  // read.hash. DATA_LOSS: the record cannot be rebuilt; the message says why the read failed and
  // why the record cannot be rebuilt.
  absl::Status Repair(ExpertRef expert, const RecordRead& read, const absl::Status& damage);
  // A read of this record succeeded, so it is no longer lost.
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
  std::set<int64_t> lost_;  // tickets of lost records
  std::unique_ptr<RecordWriter> writer_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_RECORD_REPAIR_H_
