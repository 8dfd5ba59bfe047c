#include "tests/service/store/store_under_test.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "service/store/sqlite_session_store.h"

namespace tidepool::service {
namespace {

class SqlitePlace final : public StorePlace {
 public:
  SqlitePlace() {
    std::string folder = absl::StrCat(testing::TempDir(), "/store_XXXXXX");
    folder_ = mkdtemp(folder.data());
  }
  ~SqlitePlace() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<SessionStore>> Open() override {
    return SqliteSessionStore::Open({.path = (folder_ / "sessions.db").string()});
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace

std::vector<StoreKind> StoresUnderTest() {
  return {{"Sqlite", [] { return std::make_unique<SqlitePlace>(); }}};
}

}  // namespace tidepool::service
