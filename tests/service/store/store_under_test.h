// The SessionStore implementations that the contract tests use.
#ifndef TIDEPOOL_TESTS_SERVICE_STORE_STORE_UNDER_TEST_H_
#define TIDEPOOL_TESTS_SERVICE_STORE_STORE_UNDER_TEST_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// A place where sessions are stored while no store has them open. The destructor deletes them.
class StorePlace {
 public:
  virtual ~StorePlace() = default;
  // `max_sessions` is the maximum for each principal. 0: no limit.
  virtual absl::StatusOr<std::unique_ptr<SessionStore>> Open(int64_t max_sessions) = 0;
};

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<StorePlace>()> make;
};

std::vector<StoreKind> StoresUnderTest();

// A test that runs for each store.
class SessionStoreTest : public testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override { place_ = GetParam().make(); }

  // Opens the store. The data is the same each time.
  std::unique_ptr<SessionStore> Open(int64_t max_sessions = 0) {
    auto store = place_->Open(max_sessions);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  std::unique_ptr<StorePlace> place_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_STORE_STORE_UNDER_TEST_H_
