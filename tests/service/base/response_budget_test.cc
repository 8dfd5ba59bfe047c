#include "service/base/response_budget.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/retry_after.h"

namespace tidepool::service {
namespace {

constexpr int64_t kLong = WholeResponse::kSmallBytes * 4;

TEST(ResponseBudgetTest, AreBoundedTogether) {
  const ResponseBudget budget(kLong * 2);
  std::optional<WholeResponse> first = budget.Begin("");
  WholeResponse second = budget.Begin("");
  EXPECT_TRUE(first->Grow(kLong).ok());
  EXPECT_TRUE(second.Grow(kLong).ok());
  WholeResponse third = budget.Begin("");
  // Short responses are still accepted.
  EXPECT_TRUE(third.Grow(WholeResponse::kSmallBytes).ok());
  const absl::Status refused = third.Grow(1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(base::RetryAfterOf(refused).has_value());
  EXPECT_NE(refused.message().find("use streaming"), std::string::npos) << refused;
  // Refused bytes count until the response is destroyed, like accepted bytes.
  EXPECT_EQ(budget.bytes(), kLong * 2 + WholeResponse::kSmallBytes + 1);
  third.Clear();
  EXPECT_EQ(budget.bytes(), kLong * 2);
  first.reset();
  EXPECT_TRUE(third.Grow(kLong).ok());
}

TEST(ResponseBudgetTest, APrincipalLeavesAsMuchAsItTakes) {
  const ResponseBudget budget(kLong * 6);
  std::vector<WholeResponse> greedy;
  const auto takes = [&budget](const std::string& principal, std::vector<WholeResponse>* own) {
    while (own->emplace_back(budget.Begin(principal)).Grow(kLong).ok()) {
    }
    own->pop_back();
    return own->size();
  };
  EXPECT_EQ(takes("greedy", &greedy), 3) << "half of it, alone";
  WholeResponse small = budget.Begin("greedy");
  EXPECT_TRUE(small.Grow(WholeResponse::kSmallBytes).ok());
  const absl::Status refused = small.Grow(1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(base::RetryAfterOf(refused).has_value());
  EXPECT_NE(refused.message().find("'greedy' has "), std::string::npos) << refused;
  small.Clear();

  // A principal without responses gets bytes at once. A principal that already has more than its
  // share gets no more.
  std::vector<WholeResponse> other;
  EXPECT_EQ(takes("other", &other), 1);
  EXPECT_FALSE(greedy.front().Grow(1).ok());
  greedy.clear();
  EXPECT_EQ(takes("other", &other), 3);
}

TEST(ResponseBudgetTest, WithoutAuthenticationOnePrincipalHasAll) {
  const ResponseBudget budget(kLong);
  WholeResponse response = budget.Begin("");
  EXPECT_TRUE(response.Grow(kLong).ok());
  EXPECT_FALSE(response.Grow(1).ok());
}

TEST(ResponseBudgetTest, OneIsCountedOnceWhereverItIsMoved) {
  std::optional<WholeResponse> moved;
  {
    const ResponseBudget budget(kLong);
    WholeResponse response = budget.Begin("");
    EXPECT_TRUE(response.Grow(kLong).ok());
    moved.emplace(std::move(response));
    EXPECT_EQ(budget.bytes(), kLong);
  }
  EXPECT_FALSE(moved->Grow(1).ok());
}

TEST(ResponseBudgetTest, OneIsTooLongPastItsLimitAndNotAtIt) {
  const ResponseBudget budget(WholeResponse::kMaxBytes * 2);
  WholeResponse response = budget.Begin("");
  EXPECT_TRUE(response.Grow(WholeResponse::kMaxBytes).ok());
  EXPECT_FALSE(response.IsTooLong());
  EXPECT_TRUE(response.Grow(1).ok());
  EXPECT_TRUE(response.IsTooLong());
}

}  // namespace
}  // namespace tidepool::service
