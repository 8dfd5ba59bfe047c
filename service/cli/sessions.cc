// sessions: exports sessions as JSON lines, imports them, or verifies the store. The store is a
// file that no server has open, or Redis, which servers may use at the same time.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/atomic_file.h"
#include "kernels/base/status_macros.h"
#include "service/cli/commands.h"
#include "service/cli/open_store.h"
#include "service/store/redis_address.h"
#include "service/store/session_check.h"
#include "service/store/session_json.h"

namespace tidepool::service {
namespace {

constexpr int kPage = 256;
// Maximum number of damaged sessions that a report names. Further ones are only counted.
constexpr size_t kMaxNamed = 100;

// Calls a function of a store and waits for its result.
template <typename T>
absl::StatusOr<T> Await(const std::function<void(SessionStore::Done<T>)>& call) {
  std::promise<absl::StatusOr<T>> answer;
  call([&answer](absl::StatusOr<T> value) { answer.set_value(std::move(value)); });
  return answer.get_future().get();
}

// The result of export, import or verify.
struct Report {
  int64_t sessions = 0;
  int64_t tokens = 0;
  int64_t unchanged = 0;
  std::vector<std::string> faults;  // "ID: what is wrong"

  void Add(const SessionLogData& session) {
    ++sessions;
    tokens += session.info.token_count;
  }
};

// Visits every session of the store, newest first.
absl::Status ForEach(SessionStore* store,
                     const std::function<absl::Status(const SessionInfo&)>& take) {
  std::string token;
  do {
    absl::StatusOr<SessionPage> page =
        Await<SessionPage>([&](SessionStore::Done<SessionPage> done) {
          store->List(std::nullopt, kPage, token, std::move(done));
        });
    RETURN_IF_ERROR(page.status());
    for (const SessionInfo& info : page->sessions) RETURN_IF_ERROR(take(info));
    token = page->next_page_token;
  } while (!token.empty());
  return absl::OkStatus();
}

absl::StatusOr<SessionLogData> Read(SessionStore* store, const std::string& session_id) {
  return Await<SessionLogData>([&](SessionStore::Done<SessionLogData> done) {
    store->Get(std::nullopt, session_id, std::move(done));
  });
}

// Returns true if the error is damage of one session. Then the other sessions are still read.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsInternal(status);
}

std::string NameFault(const std::string& session_id, const absl::Status& status) {
  return absl::StrCat(session_id, ": ", status.message());
}

// Adds a session that the list reports as damaged.
absl::Status AddDamage(const SessionInfo& info, Report* report) {
  std::vector<std::string>& faults = report->faults;
  // The check of the whole store may already have reported this damage.
  if (std::find(faults.begin(), faults.end(), info.damage) != faults.end()) return absl::OkStatus();
  faults.push_back(absl::StrCat(info.session_id, ": ", info.damage));
  return absl::OkStatus();
}

// Thread-compatible. Writes lines to stdout, or to a file that appears only when it is complete.
class LineWriter {
 public:
  static absl::StatusOr<LineWriter> Open(const Config& config, Console* console) {
    LineWriter writer(console);
    if (config.output.file.empty()) return writer;
    // Conversations are private: only the owner can read the file.
    const base::AtomicFileOptions options = {.existing = config.output.force
                                                             ? base::ExistingFile::kReplace
                                                             : base::ExistingFile::kRefuse,
                                             .mode = 0600};
    auto file = base::AtomicFile::Create(config.output.file, options);
    if (absl::IsAlreadyExists(file.status())) {
      return absl::InvalidArgumentError(
          absl::StrCat(config.output.file, " already exists; --force replaces it"));
    }
    ASSIGN_OR_RETURN(writer.file_, std::move(file));
    return writer;
  }

  absl::Status Write(std::string line) {
    line += '\n';
    if (file_ != nullptr) return file_->Append(line.data(), static_cast<int64_t>(line.size()));
    console_->Print(line);
    return console_->out_status();
  }

  absl::Status Finish() { return file_ == nullptr ? console_->out_status() : file_->Finish(); }

 private:
  explicit LineWriter(Console* console) : console_(console) {}

  Console* console_;
  std::unique_ptr<base::AtomicFile> file_;  // null: stdout
};

// Adds the faults of the whole store, such as lost transactions.
absl::Status AddFaults(SessionStore* store, Report* report) {
  ASSIGN_OR_RETURN(
      const std::vector<std::string> faults,
      Await<std::vector<std::string>>([&](SessionStore::Done<std::vector<std::string>> done) {
        store->Verify(std::move(done));
      }));
  report->faults.insert(report->faults.end(), faults.begin(), faults.end());
  return absl::OkStatus();
}

absl::Status Export(const Config& config, SessionStore* store, Console* console, Report* report) {
  ASSIGN_OR_RETURN(LineWriter writer, LineWriter::Open(config, console));
  // An export may be the last copy of a store. It must not look complete if sessions are lost.
  RETURN_IF_ERROR(AddFaults(store, report));
  RETURN_IF_ERROR(writer.Write(ExportHead()));
  const auto write = [&](const SessionInfo& info) -> absl::Status {
    if (!info.damage.empty()) return AddDamage(info, report);
    const absl::StatusOr<SessionLogData> session = Read(store, info.session_id);
    if (absl::IsNotFound(session.status())) return absl::OkStatus();  // deleted after it was listed
    if (IsDamage(session.status())) {
      report->faults.push_back(NameFault(info.session_id, session.status()));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(session.status());
    report->Add(*session);
    return writer.Write(SessionToJson(*session));
  };
  RETURN_IF_ERROR(ForEach(store, write));
  RETURN_IF_ERROR(writer.Write(ExportEnd(report->sessions)));
  return writer.Finish();
}

bool Same(const SessionLogData& one, const SessionLogData& other) {
  return SessionToJson(one) == SessionToJson(other);
}

absl::Status Import(const Config& config, SessionStore* store, Report* report) {
  std::ifstream file;
  const bool from_file = config.input.file.has_value() && *config.input.file != "-";
  if (from_file) {
    file.open(*config.input.file, std::ios::binary);
    if (!file) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot read ", *config.input.file, ": ", std::strerror(errno)));
    }
  }
  const auto take = [&](SessionLogData session) -> absl::Status {
    const absl::StatusOr<SessionInfo> info = Await<SessionInfo>(
        [&](SessionStore::Done<SessionInfo> done) { store->Insert(session, std::move(done)); });
    if (info.ok()) {
      report->Add(session);
      return absl::OkStatus();
    }
    if (!absl::IsAlreadyExists(info.status())) return info.status();
    ASSIGN_OR_RETURN(const SessionLogData there, Read(store, session.info.session_id));
    if (Same(there, session)) {
      ++report->unchanged;
    } else {
      report->faults.push_back(
          absl::StrCat(session.info.session_id,
                       ": the store has another session with this id, which was not changed"));
    }
    return absl::OkStatus();
  };
  const std::string name = from_file ? *config.input.file : "stdin";
  absl::StatusOr<std::vector<std::string>> faults = ReadExport(from_file ? file : std::cin, take);
  if (absl::IsInvalidArgument(faults.status())) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", faults.status().message()));
  }
  RETURN_IF_ERROR(faults.status());
  for (const std::string& fault : *faults) {
    report->faults.push_back(absl::StrCat(name, ": ", fault));
  }
  return absl::OkStatus();
}

absl::Status Verify(SessionStore* store, Report* report) {
  RETURN_IF_ERROR(AddFaults(store, report));
  const absl::Status all = ForEach(store, [&](const SessionInfo& info) -> absl::Status {
    if (!info.damage.empty()) return AddDamage(info, report);
    const absl::StatusOr<SessionLogData> session = Read(store, info.session_id);
    if (absl::IsNotFound(session.status())) return absl::OkStatus();  // deleted after it was listed
    if (!session.ok() && !IsDamage(session.status())) return session.status();
    const absl::Status status = session.ok() ? CheckSession(*session) : session.status();
    if (session.ok()) report->Add(*session);
    if (!status.ok()) report->faults.push_back(NameFault(info.session_id, status));
    return absl::OkStatus();
  });
  // Report the store's faults even if they prevent listing the sessions.
  if (!IsDamage(all)) return all;
  report->faults.emplace_back(all.message());
  return absl::OkStatus();
}

Json Describe(const Config& config, const Report& report) {
  Json json = {{"action", config.input.action},
               {"store", StoreName(config.store.location)},
               {"sessions", report.sessions},
               {"tokens", report.tokens}};
  if (config.input.action == "import") json["unchanged"] = report.unchanged;
  json["faults"] = report.faults.size();
  Json named = Json::array();
  for (size_t i = 0; i < std::min(report.faults.size(), kMaxNamed); ++i) {
    named.push_back(report.faults[i]);
  }
  json["named"] = std::move(named);
  return json;
}

std::string Text(const Json& json) {
  std::string text =
      absl::StrFormat("%s %s: %d sessions, %d tokens", json["action"].get<std::string>(),
                      json["store"].get<std::string>(), json["sessions"].get<int64_t>(),
                      json["tokens"].get<int64_t>());
  if (json.contains("unchanged")) {
    absl::StrAppendFormat(&text, "; %d already existed", json["unchanged"].get<int64_t>());
  }
  return text + "\n";
}

// Opens the store. If it is too damaged for a server, opens it read-only to read what is left.
absl::StatusOr<std::unique_ptr<SessionStore>> OpenFor(const Config& config, Report* report) {
  if (config.input.action == "import") return OpenStore(config, MissingStore::kMake);
  auto store = OpenStore(config, MissingStore::kRefuse);
  if (!absl::IsDataLoss(store.status())) return store;
  auto salvaged = OpenStore(config, MissingStore::kRefuse, {}, StoreUse::kSalvage);
  if (!salvaged.ok()) return store;
  report->faults.emplace_back(store.status().message());
  return salvaged;
}

}  // namespace

absl::Status RunSessions(const Config& config, Console* console) {
  Report report;
  ASSIGN_OR_RETURN(const std::unique_ptr<SessionStore> store, OpenFor(config, &report));
  if (config.input.action == "export") {
    RETURN_IF_ERROR(Export(config, store.get(), console, &report));
  } else if (config.input.action == "import") {
    RETURN_IF_ERROR(Import(config, store.get(), &report));
  } else {
    RETURN_IF_ERROR(Verify(store.get(), &report));
  }
  const Json json = Describe(config, report);
  // If the export is written to stdout, the report must not be.
  if (config.input.action == "export" && config.output.file.empty()) {
    console->Note(Text(json));
  } else {
    RETURN_IF_ERROR(console->PrintResult(config.output.format, json, Text));
  }
  for (const auto& fault : json["named"]) {
    console->Note(absl::StrCat("tidepool: ", OneLine(fault.get<std::string>()), "\n"));
  }
  if (report.faults.empty()) return absl::OkStatus();
  const size_t faults = report.faults.size();
  return absl::FailedPreconditionError(
      config.input.action == "import"
          ? absl::StrCat(faults, faults == 1 ? " fault" : " faults",
                         "; all undamaged new sessions were imported into ",
                         StoreName(config.store.location))
          : absl::StrCat(faults, faults == 1 ? " fault" : " faults", " in ",
                         StoreName(config.store.location)));
}

}  // namespace tidepool::service
