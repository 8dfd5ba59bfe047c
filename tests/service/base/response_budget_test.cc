#include "service/base/response_budget.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/retry_after.h"

namespace tidepool::service {
namespace {

constexpr int64_t kLong = WholeAnswer::kSmallBytes * 4;

TEST(ResponseBudgetTest, AreBoundedTogether) {
  const ResponseBudget answers(kLong * 2);
  std::optional<WholeAnswer> first = answers.Begin("");
  WholeAnswer second = answers.Begin("");
  EXPECT_TRUE(first->Grow(kLong).ok());
  EXPECT_TRUE(second.Grow(kLong).ok());
  WholeAnswer third = answers.Begin("");
  // Short responses are still accepted.
  EXPECT_TRUE(third.Grow(WholeAnswer::kSmallBytes).ok());
  const absl::Status refused = third.Grow(1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(base::RetryAfterOf(refused).has_value());
  EXPECT_NE(refused.message().find("use streaming"), std::string::npos) << refused;
  // Refused bytes count until the response is destroyed, like accepted bytes.
  EXPECT_EQ(answers.bytes(), kLong * 2 + WholeAnswer::kSmallBytes + 1);
  third.Clear();
  EXPECT_EQ(answers.bytes(), kLong * 2);
  first.reset();
  EXPECT_TRUE(third.Grow(kLong).ok());
}

TEST(ResponseBudgetTest, APrincipalLeavesAsMuchAsItTakes) {
  const ResponseBudget answers(kLong * 6);
  std::vector<WholeAnswer> greedy;
  const auto takes = [&answers](const std::string& principal, std::vector<WholeAnswer>* own) {
    while (own->emplace_back(answers.Begin(principal)).Grow(kLong).ok()) {
    }
    own->pop_back();
    return own->size();
  };
  EXPECT_EQ(takes("greedy", &greedy), 3) << "half of it, alone";
  WholeAnswer small = answers.Begin("greedy");
  EXPECT_TRUE(small.Grow(WholeAnswer::kSmallBytes).ok());
  const absl::Status refused = small.Grow(1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(base::RetryAfterOf(refused).has_value());
  EXPECT_NE(refused.message().find("'greedy' has "), std::string::npos) << refused;
  small.Clear();

  // A principal without responses gets bytes at once. A principal that already has more than its
  // share gets no more.
  std::vector<WholeAnswer> other;
  EXPECT_EQ(takes("other", &other), 1);
  EXPECT_FALSE(greedy.front().Grow(1).ok());
  greedy.clear();
  EXPECT_EQ(takes("other", &other), 3);
}

TEST(ResponseBudgetTest, WithoutAuthenticationOnePrincipalHasAll) {
  const ResponseBudget answers(kLong);
  WholeAnswer answer = answers.Begin("");
  EXPECT_TRUE(answer.Grow(kLong).ok());
  EXPECT_FALSE(answer.Grow(1).ok());
}

TEST(ResponseBudgetTest, OneIsCountedOnceWhereverItIsMoved) {
  std::optional<WholeAnswer> moved;
  {
    const ResponseBudget answers(kLong);
    WholeAnswer answer = answers.Begin("");
    EXPECT_TRUE(answer.Grow(kLong).ok());
    moved.emplace(std::move(answer));
    EXPECT_EQ(answers.bytes(), kLong);
  }
  EXPECT_FALSE(moved->Grow(1).ok());
}

TEST(ResponseBudgetTest, OneIsTooLongPastItsLimitAndNotAtIt) {
  const ResponseBudget answers(WholeAnswer::kMaxBytes * 2);
  WholeAnswer answer = answers.Begin("");
  EXPECT_TRUE(answer.Grow(WholeAnswer::kMaxBytes).ok());
  EXPECT_FALSE(answer.IsTooLong());
  EXPECT_TRUE(answer.Grow(1).ok());
  EXPECT_TRUE(answer.IsTooLong());
}

}  // namespace
}  // namespace tidepool::service
