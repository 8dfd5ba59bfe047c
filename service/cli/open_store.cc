#include "service/cli/open_store.h"

#include <filesystem>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "service/base/files.h"
#include "service/store/redis_address.h"
#include "service/store/redis_session_store.h"
#include "service/store/sqlite_session_store.h"

namespace tidepool::service {
namespace {

constexpr char kInMemory[] = ":memory:";

// Errors never quote the file.
absl::StatusOr<std::string> ReadPassword(const std::string& path) {
  constexpr size_t kMaxBytes = 4096;
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kMaxBytes));
  absl::string_view password = content;
  absl::ConsumeSuffix(&password, "\n");
  absl::ConsumeSuffix(&password, "\r");
  if (!password.empty() && password.find('\n') == absl::string_view::npos) {
    return std::string(password);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--store-password-file ", path, " must contain one password on one line"));
}

absl::StatusOr<RedisAddress> AddressOf(const Config& config) {
  ASSIGN_OR_RETURN(RedisAddress address, ParseRedisUrl(config.store.location));
  const std::string& file = config.security.store_password_file;
  if (file.empty()) return address;
  if (!address.password.empty()) {
    return absl::InvalidArgumentError(
        "--store and --store-password-file both give a password; leave one out");
  }
  ASSIGN_OR_RETURN(address.password, ReadPassword(file));
  return address;
}

std::function<void(absl::string_view)> LinesOf(const LogSink& log, LogLevel level) {
  return [log, level](absl::string_view line) { log(level, line); };
}

absl::Status MakeFolder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) return absl::OkStatus();
  std::error_code error;
  const bool made = std::filesystem::create_directories(folder, error);
  if (made && !error) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot make the folder of --store ", path, ": ", error.message()));
}

// The file in which this machine keeps the state of a Redis store. Empty: none.
std::string WitnessPath(const std::string& folder, const RedisAddress& address) {
  if (folder.empty()) return "";
  // Replace characters that do not belong in a file name: an IPv6 address has colons, and a host
  // name could have a slash.
  const std::string host = absl::StrReplaceAll(address.host, {{"/", "_"}, {":", "_"}});
  const std::string path =
      absl::StrCat(folder, "/redis-", host, "-", address.port, "-", address.database);
  return MakeFolder(path).ok() ? path : "";
}

absl::StatusOr<std::unique_ptr<SessionStore>> OpenRedis(const Config& config, const LogSink& log) {
  RedisSessionStoreOptions options;
  ASSIGN_OR_RETURN(options.address, AddressOf(config));
  options.max_sessions = config.store.max_sessions;
  options.log = LinesOf(log, LogLevel::kWarn);
  options.log_damage = LinesOf(log, LogLevel::kError);
  options.witness_path = WitnessPath(config.store.state_folder, options.address);
  if (config.store.allow_unsafe) {
    options.safety = RedisSafety::kUnchecked;
  } else if (config.store.durability == StoreDurability::kPower) {
    options.safety = RedisSafety::kPower;
  }
  return RedisSessionStore::Open(std::move(options));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionStore>> OpenStore(const Config& config, MissingStore missing,
                                                        const LogSink& log, StoreUse use) {
  if (IsRedisUrl(config.store.location)) return OpenRedis(config, log);
  if (!config.security.store_password_file.empty()) {
    return absl::InvalidArgumentError(
        "--store-password-file is for a --store at redis://; files have no password");
  }
  SqliteSessionStoreOptions options;
  options.path = config.store.location;
  options.max_sessions = config.store.max_sessions;
  options.use = use;
  options.log = LinesOf(log, LogLevel::kError);
  options.durability = config.store.durability == StoreDurability::kPower ? Durability::kPower
                                                                          : Durability::kProcess;
  std::error_code error;
  if (missing == MissingStore::kRefuse && !std::filesystem::exists(config.store.location, error)) {
    return absl::NotFoundError(absl::StrCat("session store '", config.store.location,
                                            "' does not exist; name it with --store"));
  }
  if (config.store.location != kInMemory) RETURN_IF_ERROR(MakeFolder(config.store.location));
  return SqliteSessionStore::Open(options);
}

NewStoreFile::NewStoreFile(const std::string& store) {
  std::error_code error;
  if (store == kInMemory || IsRedisUrl(store)) return;
  if (!std::filesystem::exists(store, error) && !error) path_ = store;
  had_witness_ = std::filesystem::exists(store + "-commits", error);
}

NewStoreFile::~NewStoreFile() {
  if (path_.empty()) return;
  for (const char* suffix : {"", "-wal", "-shm", "-reserve", "-commits"}) {
    if (had_witness_ && suffix == std::string("-commits")) continue;
    std::error_code error;
    std::filesystem::remove(path_ + suffix, error);
  }
}

}  // namespace tidepool::service
