#include "moe/record_repair.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "moe/expert_record.h"

namespace tidepool::moe {

RecordRepair::RecordRepair(const std::string& path, RepairOptions options)
    : path_(path), options_(std::move(options)) {
  if (!options_.rebuild) return;
  writer_ = std::make_unique<RecordWriter>(path, [note = options_.note](const absl::Status& error) {
    if (!note) return;
    note(
        absl::StrCat("a rebuilt record cannot be written back and stays damaged in the "
                     "file; such records are rebuilt each time they are needed: ",
                     error.message()));
  });
}

absl::Status RecordRepair::Rebuild(ExpertRef expert, const RecordRead& read) const {
  if (!options_.rebuild) return absl::UnimplementedError("there is nothing to rebuild it from");
  std::memset(read.into, 0, static_cast<size_t>(read.bytes));
  RETURN_IF_ERROR(options_.rebuild(expert, read.into));
  if (RecordHash(read.into, read.bytes) == read.hash) return absl::OkStatus();
  return absl::DataLossError("the model file has changed since the pack file was written");
}

absl::Status RecordRepair::Repair(ExpertRef expert, const RecordRead& read,
                                  const absl::Status& damage) {
  const absl::Status rebuilt = Rebuild(expert, read);
  if (!rebuilt.ok()) {
    lost_.insert(read.ticket);
    if (!options_.rebuild) return damage;
    const std::string both =
        absl::StrCat(damage.message(), ", and cannot be rebuilt: ", rebuilt.message());
    if (!std::exchange(noted_loss_, true)) {
      Note(absl::StrCat(path_, ": a record ", both,
                        "; requests that need it fail, and the server is not ready. Restore the "
                        "model file and restart the server. Further damaged records are counted, "
                        "but not logged"));
    }
    return absl::DataLossError(both);
  }
  lost_.erase(read.ticket);
  if (rebuilt_++ == 0) {
    Note(absl::StrCat(
        path_, ": a record ", damage.message(),
        "; it was rebuilt from the model file. Check the disk. Further damaged records "
        "are rebuilt too; they are counted, but not logged"));
  }
  writer_->Write(read);
  return absl::OkStatus();
}

RepairStats RecordRepair::stats() const {
  return {.rebuilt = rebuilt_,
          .failed_writes = writer_ == nullptr ? 0 : writer_->failures(),
          .lost = static_cast<int64_t>(lost_.size())};
}

}  // namespace tidepool::moe
