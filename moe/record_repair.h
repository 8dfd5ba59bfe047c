// RecordRepair: what becomes of records that are damaged in their file. Each is made again from
// what the file was made from, used from memory, and put back into the file.
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
  // Fills a record of zeros with what it held when the file was made. Empty: nothing is made again.
  // Errors say why it cannot be, in one clause.
  std::function<absl::Status(ExpertRef expert, std::byte* record)> rebuild;
  // Takes lines for people; called on several threads. May be empty.
  std::function<void(absl::string_view line)> note;
};

struct RepairStats {
  int64_t rebuilt = 0;        // records that were made again
  int64_t failed_writes = 0;  // of these, that could not be put back: they are made again each time
  int64_t lost = 0;           // now: records that are damaged and cannot be made again
};

// Engine thread only.
class RecordRepair {
 public:
  // `path`: of the records' file, as it is now; another file that takes its name is not written to.
  RecordRepair(const std::string& path, RepairOptions options);

  // Of a read that ended with DATA_LOSS. OK: read.into has the record, whose hash is read.hash.
  // DATA_LOSS: it cannot be made again; the message has both reasons, in one clause.
  absl::Status Repair(ExpertRef expert, const RecordRead& read, const absl::Status& damage);
  // A read of this ticket was sound: it is not lost any more.
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
  std::set<int64_t> lost_;  // tickets
  std::unique_ptr<RecordWriter> writer_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_RECORD_REPAIR_H_
