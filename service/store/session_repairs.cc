#include "service/store/session_repairs.h"

#include <cstdint>
#include <vector>

#include "kernels/base/status_macros.h"
#include "service/store/session_seals.h"

namespace tidepool::service {
namespace {

// Returns whether the error concerns only one session. Other errors concern the whole store.
bool IsOfOneSession(const absl::Status& status) {
  return status.ok() || absl::IsDataLoss(status) || absl::IsNotFound(status);
}

absl::Status Seal(SessionRow* row, SealedSessions* sessions, SealedLogs* logs) {
  if (!row->classes_fit) return CheckSeal(*row);
  RETURN_IF_ERROR(logs->Seal(row));
  return sessions->Save(row);
}

}  // namespace

absl::Status DeleteDamaged(const SessionRow& row, const StoreTime& now, SealedSessions* sessions,
                           SealedLogs* logs) {
  // When SQLite deletes a row from a damaged page, it does not check whether other rows overlap
  // with it. So read the neighbours before and after the deletion. If a page of a neighbour cannot
  // be read, SQLite refuses every delete in this transaction.
  std::vector<SessionRow> neighbors = sessions->Neighbors(row.key, now);
  std::erase_if(neighbors, [&](const SessionRow& neighbor) {
    SessionLogData log;
    return !logs->Read(neighbor, &log).ok();
  });
  RETURN_IF_ERROR(logs->Delete(row.key));
  RETURN_IF_ERROR(sessions->Remove(row));
  for (const SessionRow& neighbor : neighbors) {
    SessionLogData log;
    RETURN_IF_ERROR(logs->Read(neighbor, &log));
  }
  return absl::OkStatus();
}

absl::Status EndInterruptedTurns(SealedSessions* sessions, SealedLogs* logs) {
  const absl::StatusOr<std::vector<int64_t>> keys = sessions->InUse();
  if (absl::IsDataLoss(keys.status())) return absl::OkStatus();  // Scan reports this damage
  RETURN_IF_ERROR(keys.status());
  const absl::Status ended = sessions->EndLeases();
  if (absl::IsDataLoss(ended)) return absl::OkStatus();
  RETURN_IF_ERROR(ended);
  const auto end = [&](int64_t key) -> absl::Status {
    ASSIGN_OR_RETURN(SessionRow row, sessions->FindKey(key, StoreTime()));
    RETURN_IF_ERROR(logs->UpdateRunningTurn(&row, TurnFinish::kCancelled, ""));
    row.lease_request.clear();
    row.lease_until_us = 0;
    return sessions->Save(&row);
  };
  for (const int64_t key : *keys) {
    const absl::Status status = end(key);
    if (!IsOfOneSession(status)) return status;
  }
  return absl::OkStatus();
}

absl::Status SealAll(SealedSessions* sessions, SealedLogs* logs) {
  ASSIGN_OR_RETURN(std::vector<SessionRow> rows, sessions->AdoptAll());
  for (SessionRow& row : rows) {
    const absl::Status status = Seal(&row, sessions, logs);
    if (!IsOfOneSession(status)) return status;
  }
  return absl::OkStatus();
}

}  // namespace tidepool::service
