#include "service/http/choice_generations.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tidepool::service {
namespace {

OpenAiRequest Request(size_t choices) {
  OpenAiRequest request;
  for (size_t i = 0; i < choices; ++i) request.choices.emplace_back().set_model("model");
  request.n = static_cast<int64_t>(choices);
  return request;
}

TEST(InputsOfTest, NamesTheChoicesOfARequestWithoutAKey) {
  EXPECT_EQ(InputsOf(Request(1), {}, "id")[0].own_id, "id");
  const std::vector<GenerationInput> inputs = InputsOf(Request(2), {}, "id");
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(inputs[0].own_id, "id-0");
  EXPECT_EQ(inputs[1].own_id, "id-1");
  EXPECT_TRUE(inputs[1].request.request_id().empty());
  EXPECT_FALSE(inputs[1].replay);
  EXPECT_FALSE(inputs[1].digests.has_value());
}

TEST(InputsOfTest, HasTheCaller) {
  HttpAsker asker;
  asker.caller.principal = "alice";
  asker.caller.role = Role::kUser;
  const std::vector<GenerationInput> inputs = InputsOf(Request(1), asker, "id");
  EXPECT_EQ(inputs[0].principal, "alice");
  EXPECT_EQ(inputs[0].role, Role::kUser);
  EXPECT_EQ(inputs[0].deadline, absl::InfiniteDuration());
}

TEST(InputsOfTest, NamesTheChoicesOfARequestWithAKey) {
  const HttpAsker asker = {.caller = {}, .trace = {}, .key = {.id = "name"}};
  const std::vector<GenerationInput> inputs = InputsOf(Request(2), asker, "id");
  EXPECT_NE(inputs[0].request.request_id(), inputs[1].request.request_id());
  EXPECT_TRUE(inputs[0].replay);
  ASSERT_TRUE(inputs[0].digests.has_value());
  EXPECT_NE(inputs[0].digests->body, inputs[1].digests->body);
  EXPECT_FALSE(inputs[0].request.has_resume_after());
}

TEST(InputsOfTest, ResumesEachChoiceWhereTheClientStopped) {
  const HttpAsker asker = {.caller = {},
                           .trace = {},
                           .key = {.id = "name", .resume = *StreamPosition::Parse("3,7f", 2)}};
  const std::vector<GenerationInput> inputs = InputsOf(Request(2), asker, "id");
  EXPECT_EQ(inputs[0].request.resume_after(), 3);
  EXPECT_EQ(inputs[1].request.resume_after(), 7);
}

TEST(InputsOfTest, PutsAllChoicesIntoOneTrace) {
  const std::vector<GenerationInput> inputs = InputsOf(Request(2), {}, "id");
  EXPECT_FALSE(inputs[0].span.context.trace_id.empty());
  EXPECT_EQ(inputs[0].span.context.trace_id, inputs[1].span.context.trace_id);
  EXPECT_NE(inputs[0].span.context.span_id, inputs[1].span.context.span_id);
}

TEST(InputsOfTest, ContinuesTheClientsTrace) {
  HttpAsker asker;
  asker.trace = ParseTraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "");
  const std::vector<GenerationInput> inputs = InputsOf(Request(1), asker, "id");
  EXPECT_EQ(inputs[0].span.context.trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(inputs[0].span.parent_span, "b7ad6b7169203331");
}

}  // namespace
}  // namespace tidepool::service
