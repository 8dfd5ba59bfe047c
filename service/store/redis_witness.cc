#include "service/store/redis_witness.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/base/random_hex.h"
#include "kernels/base/status_macros.h"
#include "service/store/redis_keys.h"
#include "service/store/store_errors.h"

namespace tidepool::service {
namespace {

constexpr int kMaxLosses = 20;
constexpr char kDamagedFile[] = "the server's append-only file or its manifest is damaged";

std::optional<int64_t> Number(RedisValue value) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(value.text(), &number)) return std::nullopt;
  return number;
}

// Returns the numbers of the databases that have keys. INFO has a line such as "db3:keys=..." for
// each of them.
absl::StatusOr<std::vector<int>> UsedDatabases(RedisLink* link) {
  ASSIGN_OR_RETURN(const RedisReply reply, link->Call({"INFO", "keyspace"}));
  std::vector<int> used;
  for (absl::string_view line : absl::StrSplit(reply.value().text(), '\n')) {
    int database = 0;
    if (absl::ConsumePrefix(&line, "db") &&
        absl::SimpleAtoi(line.substr(0, line.find(':')), &database)) {
      used.push_back(database);
    }
  }
  return used;
}

// Runs a command. UNAVAILABLE if the connection broke. Other errors are ignored: the server may
// refuse the command, for example because its memory is full or a key has another type.
absl::Status Try(RedisLink* link, const std::vector<std::string>& command) {
  const absl::Status status = link->Call(command).status();
  return absl::IsUnavailable(status) ? status : absl::OkStatus();
}

}  // namespace

RedisWitness::RedisWitness(const std::string& path, int database)
    : database_(database), file_(path.empty() ? ":memory:" : path) {}

std::vector<std::string> RedisWitness::Faults() const {
  std::vector<std::string> all = losses_;
  all.insert(all.end(), faults_.begin(), faults_.end());
  return all;
}

absl::StatusOr<RedisWitness::Marker> RedisWitness::Read(RedisLink* link) {
  Marker marker;
  ASSIGN_OR_RETURN(const RedisReply exists, link->Call({"EXISTS", RedisStoreKey()}));
  marker.exists = exists.value().integer() != 0;
  const auto fields = link->Call({"HMGET", RedisStoreKey(), "id", "database", "commits"});
  if (absl::IsUnavailable(fields.status())) return fields.status();
  if (fields.ok()) {
    marker.id = Utf8Text(fields->value()[0].text());
    marker.database = Number(fields->value()[1]);
    marker.commits = Number(fields->value()[2]);
  }
  const auto sessions = link->Call({"ZCARD", RedisAllKey()});
  if (absl::IsUnavailable(sessions.status())) return sessions.status();
  if (sessions.ok()) marker.sessions = sessions->value().integer();
  return marker;
}

absl::StatusOr<RedisWitness::Marker> RedisWitness::ReadOrMake(RedisLink* link) const {
  ASSIGN_OR_RETURN(Marker marker, Read(link));
  if (!marker.id.empty() && marker.database.has_value()) return marker;
  // Use HSETNX, because two fronts may do this at the same time.
  RETURN_IF_ERROR(Try(link, {"HSETNX", RedisStoreKey(), "id", base::RandomHex()}));
  RETURN_IF_ERROR(Try(link, {"HSETNX", RedisStoreKey(), "database", absl::StrCat(database_)}));
  return Read(link);
}

absl::StatusOr<std::vector<std::string>> RedisWitness::Check(RedisLink* link, absl::Time now) {
  faults_.clear();
  RETURN_IF_ERROR(LoadLosses(link));
  const auto earlier = static_cast<int64_t>(losses_.size());
  ASSIGN_OR_RETURN(const Marker marker, ReadOrMake(link));
  if (!known_.has_value()) known_ = file_.Read();
  RETURN_IF_ERROR(Compare(link, marker, now));
  RETURN_IF_ERROR(CheckDatabases(link, marker));
  checked_ = marker;
  std::vector<std::string> found(losses_.begin() + earlier, losses_.end());
  found.insert(found.end(), faults_.begin(), faults_.end());
  return found;
}

absl::Status RedisWitness::Compare(RedisLink* link, const Marker& marker, absl::Time now) {
  if (marker.exists && marker.id.empty()) {
    faults_.push_back(absl::StrCat("the key ", RedisStoreKey(),
                                   " is damaged, so lost changes are not noticed; delete it"));
  }
  if (!known_.has_value() || marker.id.empty()) return absl::OkStatus();
  if (known_->store_id == marker.id) return CompareCommits(link, marker, now);
  if (known_->sessions == 0) return absl::OkStatus();
  if (marker.sessions == 0) {
    faults_.push_back(absl::StrCat(
        "all of its ", known_->sessions,
        " sessions are lost: the database is empty. If you did not empty it, ", kDamagedFile,
        ". Stop the server and restore a backup of its files. Each start of this front repeats "
        "this until a session is created"));
  } else {
    faults_.push_back(absl::StrCat("all of its ", known_->sessions,
                                   " sessions are lost: the database has another store, with ",
                                   marker.sessions,
                                   " sessions. If you did not replace it, stop the server and "
                                   "restore a backup of its files"));
  }
  return absl::OkStatus();
}

absl::Status RedisWitness::CompareCommits(RedisLink* link, const Marker& marker, absl::Time now) {
  if (!marker.commits.has_value() && known_->commits > 0) {
    faults_.push_back("its count of changes was damaged and was replaced");
    return Try(link, {"HSET", RedisStoreKey(), "commits", absl::StrCat(known_->commits)});
  }
  const int64_t lost = known_->commits - marker.commits.value_or(0);
  if (lost <= 0) return absl::OkStatus();
  losses_.push_back(
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", now, absl::UTCTimeZone()), ": the last ",
                   lost, " changes are lost (it had ", known_->sessions, " sessions then, and has ",
                   marker.sessions, "): the server started with an older state, because ",
                   kDamagedFile, ", or because it crashed before it wrote them to the disk"));
  if (losses_.size() <= kMaxLosses) {
    RETURN_IF_ERROR(Try(link, {"RPUSH", RedisLossesKey(), losses_.back()}));
  }
  // Add the lost changes to the count, so that they are not reported again.
  return Try(link, {"HINCRBY", RedisStoreKey(), "commits", absl::StrCat(lost)});
}

absl::Status RedisWitness::CheckDatabases(RedisLink* link, const Marker& marker) {
  if (marker.database.has_value() && *marker.database != database_) {
    faults_.push_back(absl::StrCat(
        "database ", database_, " has the sessions of database ", *marker.database, ", because ",
        kDamagedFile, ", or because they were moved. If you moved them, run HSET ", RedisStoreKey(),
        " database ", database_, " in database ", database_));
  }
  const absl::StatusOr<std::vector<int>> used = UsedDatabases(link);
  if (absl::IsUnavailable(used.status())) return used.status();
  if (!used.ok()) return absl::OkStatus();
  bool moved = false;
  for (const int database : *used) {
    if (database == database_) continue;
    absl::Status selected = link->Call({"SELECT", absl::StrCat(database)}).status();
    if (absl::IsUnavailable(selected)) return selected;
    if (!selected.ok()) break;  // this user has no permission
    moved = true;
    ASSIGN_OR_RETURN(const Marker other, Read(link));
    const bool of_another = !other.id.empty() && other.database.value_or(database_) != database_;
    if (!other.exists || of_another) continue;
    faults_.push_back(absl::StrCat(
        "database ", database, " of the server has changes of the sessions in database ", database_,
        ": a SELECT command in its append-only file is damaged. Stop the server, and restore a "
        "backup of the file or correct the command"));
  }
  return moved ? link->Call({"SELECT", absl::StrCat(database_)}).status() : absl::OkStatus();
}

absl::Status RedisWitness::LoadLosses(RedisLink* link) {
  const auto lines = link->Call({"LRANGE", RedisLossesKey(), "0", absl::StrCat(kMaxLosses - 1)});
  if (absl::IsUnavailable(lines.status())) return lines.status();
  losses_.clear();
  if (!lines.ok()) return absl::OkStatus();
  for (size_t i = 0; i < lines->value().size(); ++i) {
    losses_.push_back(Utf8Text(lines->value()[i].text()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> RedisWitness::Remember(RedisLink* link, absl::Time now) {
  ASSIGN_OR_RETURN(const Marker marker, Read(link));
  // The database was emptied or replaced while this connection was open.
  if (marker.id != checked_.id) return Check(link, now);
  if (marker.id.empty()) return std::vector<std::string>();
  const bool another = known_.has_value() && known_->store_id != marker.id;
  const bool changed = marker.commits.value_or(0) > checked_.commits.value_or(0);
  if (another && known_->sessions > 0 && !changed) return std::vector<std::string>();
  const WitnessedCommit present = {
      .store_id = marker.id, .commits = marker.commits.value_or(0), .sessions = marker.sessions};
  const bool damaged = known_.has_value() && !another && present.commits < known_->commits;
  if (damaged || known_ == present) return std::vector<std::string>();
  known_ = present;
  file_.Write(present);
  return std::vector<std::string>();
}

}  // namespace tidepool::service
