#include "tests/service/store/store_under_test.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "service/store/redis_session_store.h"
#include "service/store/sqlite_session_store.h"
#include "tests/service/store/redis_server.h"

namespace tidepool::service {
namespace {

class SqlitePlace final : public StorePlace {
 public:
  SqlitePlace() {
    std::string folder = absl::StrCat(testing::TempDir(), "/store_XXXXXX");
    folder_ = mkdtemp(folder.data());
  }
  ~SqlitePlace() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<SessionStore>> Open(int64_t max_sessions) override {
    return SqliteSessionStore::Open(
        {.path = (folder_ / "sessions.db").string(), .max_sessions = max_sessions});
  }

 private:
  std::filesystem::path folder_;
};

class RedisPlace final : public StorePlace {
 public:
  absl::StatusOr<std::unique_ptr<SessionStore>> Open(int64_t max_sessions) override {
    RedisSessionStoreOptions options;
    options.address = server_.address();
    options.max_sessions = max_sessions;
    return RedisSessionStore::Open(std::move(options));
  }

 private:
  RedisServer server_;
};

}  // namespace

std::vector<StoreKind> StoresUnderTest() {
  return {{"Sqlite", [] { return std::make_unique<SqlitePlace>(); }},
          {"Redis", [] { return std::make_unique<RedisPlace>(); }}};
}

}  // namespace tidepool::service
