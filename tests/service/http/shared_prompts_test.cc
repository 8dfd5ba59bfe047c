#include "service/http/shared_prompts.h"

#include <gtest/gtest.h>

#include <vector>

namespace tidepool::service {
namespace {

// Returns a message that contains only log-probabilities of the prompt.
v1::GenerateResponse OfPrompt() {
  v1::GenerateResponse message;
  message.add_prompt_logprobs();
  return message;
}

v1::GenerateResponse Token(int32_t id) {
  v1::GenerateResponse message;
  message.add_token_ids(id);
  return message;
}

v1::GenerateResponse Finish() {
  v1::GenerateResponse message;
  message.set_finish_reason(v1::LENGTH);
  return message;
}

bool Holds(SharedPrompts* prompts, int64_t choice, v1::GenerateResponse message) {
  return prompts->Hold(choice, &message);
}

TEST(SharedPromptsTest, HoldsTokensUntilTheFirstChoiceHasOne) {
  SharedPrompts prompts(/*choices=*/3, /*n=*/3, /*shares=*/true);
  EXPECT_TRUE(Holds(&prompts, 2, Token(5)));
  EXPECT_TRUE(Holds(&prompts, 1, Token(6)));
  EXPECT_FALSE(Holds(&prompts, 0, OfPrompt()));
  EXPECT_TRUE(prompts.Release(0, OfPrompt()).empty()) << "more of the prompt may come";
  EXPECT_FALSE(Holds(&prompts, 0, Token(7)));
  const std::vector<v1::GenerateResponse> held = prompts.Release(0, Token(7));
  ASSERT_EQ(held.size(), 2U);
  EXPECT_EQ(held[0].index(), 2);
  EXPECT_EQ(held[0].token_ids(0), 5);
  EXPECT_EQ(held[1].index(), 1);
  EXPECT_EQ(held[1].token_ids(0), 6);
  EXPECT_FALSE(Holds(&prompts, 1, Token(8)));
  EXPECT_TRUE(prompts.Release(0, Token(9)).empty());
}

TEST(SharedPromptsTest, HoldsTheEndOfAnEmptyResponse) {
  SharedPrompts prompts(/*choices=*/2, /*n=*/2, /*shares=*/true);
  EXPECT_TRUE(Holds(&prompts, 1, Finish()));
  EXPECT_EQ(prompts.Release(0, Finish()).size(), 1U);
}

TEST(SharedPromptsTest, DoesNotHoldMessagesAboutThePrompt) {
  SharedPrompts prompts(/*choices=*/2, /*n=*/2, /*shares=*/true);
  EXPECT_FALSE(Holds(&prompts, 1, OfPrompt()));
}

TEST(SharedPromptsTest, KeepsPromptsApart) {
  SharedPrompts prompts(/*choices=*/4, /*n=*/2, /*shares=*/true);
  EXPECT_TRUE(prompts.IsFirst(2));
  EXPECT_FALSE(prompts.IsFirst(3));
  EXPECT_TRUE(Holds(&prompts, 3, Token(1)));
  EXPECT_TRUE(prompts.Release(0, Token(2)).empty());
  EXPECT_TRUE(Holds(&prompts, 3, Token(3)));
  EXPECT_FALSE(Holds(&prompts, 1, Token(4)));
  EXPECT_EQ(prompts.Release(2, Token(5)).size(), 2U);
}

TEST(SharedPromptsTest, HoldsNothingWithoutLogprobs) {
  SharedPrompts prompts(/*choices=*/2, /*n=*/2, /*shares=*/false);
  EXPECT_FALSE(Holds(&prompts, 1, Token(1)));
}

}  // namespace
}  // namespace tidepool::service
