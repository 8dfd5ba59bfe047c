// The stores that the contract is tested over.
#ifndef TIDEPOOL_TESTS_SERVICE_STORE_STORE_UNDER_TEST_H_
#define TIDEPOOL_TESTS_SERVICE_STORE_STORE_UNDER_TEST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/store/session_store.h"

namespace tidepool::service {

// Where sessions lie while no store has them open; they go with it.
class StorePlace {
 public:
  virtual ~StorePlace() = default;
  // `max_sessions` is of one principal; 0: any number.
  virtual absl::StatusOr<std::unique_ptr<SessionStore>> Open(int64_t max_sessions) = 0;
};

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<StorePlace>()> make;
};

std::vector<StoreKind> StoresUnderTest();

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_STORE_STORE_UNDER_TEST_H_
