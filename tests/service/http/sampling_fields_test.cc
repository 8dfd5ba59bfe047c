#include <gtest/gtest.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "service/http/http_error.h"
#include "service/http/openai_request.h"

namespace tidepool::service {
namespace {

absl::StatusOr<OpenAiRequest> Completion(const std::string& text) {
  const absl::StatusOr<Json> body = ParseJsonBody(text);
  if (!body.ok()) return body.status();
  return ParseCompletionRequest(*body);
}

v1::Sampling SamplingOf(const std::string& text) {
  const absl::StatusOr<OpenAiRequest> request = Completion(text);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? request->choices[0].sampling() : v1::Sampling();
}

TEST(SamplingFieldsTest, TheSamplersOfVllmAndLlamaCppArrive) {
  const v1::Sampling sampling = SamplingOf(R"({"prompt":"Once","typical_p":0.5,"top_n_sigma":1.5,
      "xtc_probability":0.25,"xtc_threshold":0.125,"dry_multiplier":0.75,"dry_base":2,
      "dry_allowed_length":3,"dry_penalty_last_n":-1,"dry_sequence_breakers":["\n","x"],
      "bad_words":["no"],"allowed_token_ids":[4,5]})");
  EXPECT_EQ(sampling.typical_p(), 0.5f);
  EXPECT_EQ(sampling.top_n_sigma(), 1.5f);
  EXPECT_EQ(sampling.xtc_probability(), 0.25f);
  EXPECT_EQ(sampling.xtc_threshold(), 0.125f);
  EXPECT_EQ(sampling.dry_multiplier(), 0.75f);
  EXPECT_EQ(sampling.dry_base(), 2.0f);
  EXPECT_EQ(sampling.dry_allowed_length(), 3);
  EXPECT_EQ(sampling.dry_penalty_last_n(), -1);
  ASSERT_EQ(sampling.dry_sequence_breakers_size(), 2);
  EXPECT_EQ(sampling.dry_sequence_breakers(0), "\n");
  ASSERT_EQ(sampling.bad_words_size(), 1);
  EXPECT_EQ(sampling.bad_words(0), "no");
  ASSERT_EQ(sampling.allowed_token_ids_size(), 2);
  EXPECT_EQ(sampling.allowed_token_ids(1), 5);
  // The values with which the samplers of the two servers are off.
  const v1::Sampling off =
      SamplingOf(R"({"prompt":"Once","typical_p":1,"top_n_sigma":-1,"bad_words":[],
          "dry_multiplier":0,"xtc_probability":0})");
  EXPECT_EQ(off.top_n_sigma(), 0);
  EXPECT_EQ(off.bad_words_size(), 0);
}

TEST(SamplingFieldsTest, FaultsAreNamed) {
  const struct {
    const char* fields;
    const char* param;
    const char* message;
  } table[] = {
      {R"("typical_p":0)", "typical_p", "above 0 and at most 1"},
      {R"("top_n_sigma":"1")", "top_n_sigma", "number"},
      {R"("xtc_probability":2)", "xtc_probability", "from 0 to 1"},
      {R"("dry_base":0.5)", "dry_base", "at least 1"},
      {R"("dry_penalty_last_n":-2)", "dry_penalty_last_n", "from -1"},
      {R"("dry_sequence_breakers":[])", "dry_sequence_breakers", "empty"},
      {R"("dry_sequence_breakers":"a")", "dry_sequence_breakers", "array"},
      {R"("bad_words":["a",1])", "bad_words", "list of strings"},
      {R"("bad_words":[""])", "bad_words[0]", "0 bytes"},
      {R"("allowed_token_ids":[])", "allowed_token_ids", "empty"},
      {R"("allowed_token_ids":[1.5])", "allowed_token_ids[0]", "token id"},
  };
  for (const auto& row : table) {
    const auto request = Completion(absl::StrCat(R"({"prompt":"x",)", row.fields, "}"));
    ASSERT_FALSE(request.ok()) << row.fields;
    const HttpError error = ToHttpError(request.status());
    EXPECT_EQ(error.status, 400) << row.fields;
    EXPECT_EQ(error.param, row.param) << error.message;
    EXPECT_TRUE(absl::StrContains(error.message, row.message)) << error.message;
  }
}

}  // namespace
}  // namespace tidepool::service
