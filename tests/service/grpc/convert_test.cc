#include "service/grpc/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "kernels/base/retry_after.h"
#include "service/grpc/check_request.h"
#include "service/grpc/raw_unary.h"
#include "service/grpc/status.h"
#include "service/grpc/wire_check.h"
#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::service {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

TEST(StatusTest, CodesAreTheSameBothWays) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<StatusCode>(code), "why");
    const grpc::Status wire = ToGrpcStatus(status);
    EXPECT_EQ(static_cast<int>(wire.error_code()), code);
    EXPECT_EQ(FromGrpcStatus(wire), status);
  }
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(StatusTest, ARetryHintCrossesTheWireAsRetryInfo) {
  const absl::Status status =
      base::WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Milliseconds(2050));
  const grpc::Status wire = ToGrpcStatus(status);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(wire.error_details()));
  EXPECT_EQ(details.code(), static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_EQ(details.message(), "full");
  ASSERT_EQ(details.details_size(), 1);
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(details.details(0).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 2);
  EXPECT_EQ(retry.retry_delay().nanos(), 50'000'000);
  EXPECT_EQ(FromGrpcStatus(wire), status);

  // A hint from another program may have any size.
  retry.mutable_retry_delay()->set_seconds(std::numeric_limits<int64_t>::max());
  details.mutable_details(0)->PackFrom(retry);
  const grpc::Status far(grpc::StatusCode::RESOURCE_EXHAUSTED, "full", details.SerializeAsString());
  EXPECT_EQ(base::RetryAfterOf(FromGrpcStatus(far)), base::kLongestRetryAfter);

  // Details that are not a google.rpc.Status contain no hint.
  const grpc::Status foreign(grpc::StatusCode::UNAVAILABLE, "gone", "\xff\xff");
  EXPECT_EQ(FromGrpcStatus(foreign), absl::UnavailableError("gone"));
}

TEST(DeadlineTest, OfACallWithoutOneIsInfinite) {
  const grpc::CallbackServerContext context;
  EXPECT_EQ(DeadlineOf(context), absl::InfiniteDuration());
}

TEST(StatusTest, LongMessagesAreCutBetweenCharacters) {
  std::string text;
  while (text.size() < 5000) text += "\xE2\x82\xAC";
  const std::string cut = ToGrpcStatus(absl::InternalError(text)).error_message();
  EXPECT_LE(cut.size(), 1024);
  EXPECT_EQ(cut.size() % 3, 0);
}

TEST(CheckTest, SamplingHasLimits) {
  const auto code = [](auto set) {
    v1::GenerateRequest request;
    request.set_text("x");
    set(request.mutable_sampling());
    return CheckGenerateRequest(request).code();
  };
  EXPECT_EQ(code([](v1::Sampling*) {}), StatusCode::kOk);
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {-1.0f, 101.0f, NAN, inf, -inf}) {
    EXPECT_EQ(code([&](v1::Sampling* s) { s->set_temperature(bad); }),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(code([&](v1::Sampling* s) { s->set_top_p(bad); }), StatusCode::kInvalidArgument);
    EXPECT_EQ(code([&](v1::Sampling* s) { s->set_min_p(bad); }), StatusCode::kInvalidArgument);
    EXPECT_EQ(code([&](v1::Sampling* s) { s->set_frequency_penalty(bad * 3); }),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(code([&](v1::Sampling* s) { s->set_presence_penalty(bad * 3); }),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(code([&](v1::Sampling* s) { (*s->mutable_logit_bias())[1] = bad * 101; }),
              StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(code([](v1::Sampling* s) { s->set_top_k(-1); }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](v1::Sampling* s) { s->set_top_p(0); }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](v1::Sampling* s) { s->set_repetition_penalty(0); }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](v1::Sampling* s) {
              for (int i = 0; i < 1025; ++i) (*s->mutable_logit_bias())[i] = 1;
            }),
            StatusCode::kInvalidArgument);
}

TEST(CheckTest, NewerSamplersHaveLimits) {
  const auto message = [](auto set) {
    v1::GenerateRequest request;
    request.set_text("x");
    set(request.mutable_sampling());
    return std::string(CheckGenerateRequest(request).message());
  };
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {-1.0f, NAN, inf, -inf}) {
    EXPECT_THAT(message([&](auto* s) { s->set_typical_p(bad); }), HasSubstr("typical_p"));
    EXPECT_THAT(message([&](auto* s) { s->set_top_n_sigma(bad); }), HasSubstr("top_n_sigma"));
    EXPECT_THAT(message([&](auto* s) { s->set_xtc_probability(bad); }), HasSubstr("xtc_prob"));
    EXPECT_THAT(message([&](auto* s) { s->set_xtc_threshold(bad); }), HasSubstr("xtc_threshold"));
    EXPECT_THAT(message([&](auto* s) { s->set_dry_multiplier(bad); }), HasSubstr("dry_mult"));
    EXPECT_THAT(message([&](auto* s) { s->set_dry_base(bad); }), HasSubstr("dry_base"));
  }
  EXPECT_THAT(message([](auto* s) { s->set_dry_allowed_length(-1); }), HasSubstr("dry_allowed"));
  EXPECT_THAT(message([](auto* s) { s->set_dry_penalty_last_n(-2); }), HasSubstr("dry_penalty"));
  EXPECT_THAT(message([](auto* s) { s->add_dry_sequence_breakers(""); }),
              HasSubstr("dry_sequence_breakers[0] is 0 bytes long"));
  EXPECT_THAT(message([](auto* s) { s->add_dry_sequence_breakers("\xff"); }),
              HasSubstr("dry_sequence_breakers"));
  EXPECT_THAT(message([](auto* s) { s->add_bad_words("\xff"); }), HasSubstr("bad_words"));
  EXPECT_THAT(message([](auto* s) { s->add_bad_words(std::string(257, 'x')); }),
              HasSubstr("1 to 256 bytes"));
  EXPECT_THAT(message([](auto* s) { s->add_allowed_token_ids(-1); }),
              HasSubstr("allowed_token_ids is -1"));
}

TEST(CheckTest, WorkersOfEarlierReleasesLackFields) {
  const auto field = [](int32_t understands, auto set) {
    v1::GenerateRequest request;
    set(&request);
    return std::string(CheckUnderstood(request, understands).message());
  };
  EXPECT_THAT(field(0, [](auto* r) { r->set_echo(true); }), HasSubstr("echo"));
  EXPECT_EQ(field(1, [](auto* r) { r->set_echo(true); }), "");
  EXPECT_THAT(field(1, [](auto* r) { r->set_regex("a"); }), HasSubstr("constraint"));
  EXPECT_EQ(field(2, [](auto* r) { r->set_regex("a"); }), "");
  for (const auto set : {+[](v1::Sampling* s) { s->set_typical_p(0.5f); },
                         +[](v1::Sampling* s) { s->set_top_n_sigma(1); },
                         +[](v1::Sampling* s) { s->set_dry_multiplier(1); },
                         +[](v1::Sampling* s) { s->set_xtc_probability(1); },
                         +[](v1::Sampling* s) { s->add_bad_words("a"); },
                         +[](v1::Sampling* s) { s->add_allowed_token_ids(1); }}) {
    EXPECT_THAT(field(2, [&](auto* r) { set(r->mutable_sampling()); }), HasSubstr("sampling."));
    EXPECT_EQ(field(3, [&](auto* r) { set(r->mutable_sampling()); }), "");
  }
  EXPECT_THAT(field(3, [](auto* r) { r->set_processed_logprobs(true); }),
              HasSubstr("processed_logprobs"));
  EXPECT_EQ(field(4, [](auto* r) { r->set_processed_logprobs(true); }), "");
}

TEST(CheckTest, StopsHaveLimits) {
  const auto check = [](auto set) {
    v1::GenerateRequest request;
    request.set_text("x");
    set(request.mutable_stopping());
    return CheckGenerateRequest(request);
  };
  EXPECT_TRUE(check([](v1::Stopping* s) { s->add_stop(std::string(1024, 'x')); }).ok());
  EXPECT_FALSE(check([](v1::Stopping* s) { s->add_stop(std::string(1025, 'x')); }).ok());
  EXPECT_FALSE(check([](v1::Stopping* s) { s->add_stop(""); }).ok());
  EXPECT_FALSE(check([](v1::Stopping* s) { s->add_stop("\xff"); }).ok());
  EXPECT_FALSE(check([](v1::Stopping* s) {
                 for (int i = 0; i < 17; ++i) s->add_stop("x");
               }).ok());
  EXPECT_FALSE(check([](v1::Stopping* s) { s->set_max_tokens(0); }).ok());
}

TEST(CheckTest, SessionIds) {
  EXPECT_TRUE(CheckSessionId("a-B_c.9:x").ok());
  EXPECT_TRUE(CheckSessionId(std::string(128, 'a')).ok());
  for (const std::string& bad : {std::string(), std::string(129, 'a'), std::string("a/b"),
                                 std::string("\xC3\xA4"), std::string("a\0b", 3)}) {
    EXPECT_EQ(CheckSessionId(bad).code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(ConvertTest, SamplingRoundTrips) {
  engine::SamplingParams sampling = {.temperature = 0.7f,
                                     .top_k = 5,
                                     .top_p = 0.5f,
                                     .min_p = 0.1f,
                                     .seed = 12345678901234567890u,
                                     .repetition_penalty = 1.1f,
                                     .frequency_penalty = -1,
                                     .presence_penalty = 2,
                                     .logit_bias = {{1, 2.0f}, {7, -3.0f}},
                                     .typical_p = 0.25f,
                                     .top_n_sigma = 1.5f,
                                     .xtc_probability = 0.5f,
                                     .xtc_threshold = 0.2f,
                                     .dry_multiplier = 0.8f,
                                     .dry_base = 2,
                                     .dry_allowed_length = 3,
                                     .dry_penalty_last_n = 64,
                                     .dry_sequence_breakers = {"a", "b"},
                                     .bad_words = {"c"},
                                     .allowed_token_ids = {4, 5}};
  v1::Sampling wire;
  ToProto(sampling, &wire);
  const engine::SamplingParams back = FromProto(wire, engine::SamplingParams());
  EXPECT_EQ(back.temperature, sampling.temperature);
  EXPECT_EQ(back.top_k, sampling.top_k);
  EXPECT_EQ(back.top_p, sampling.top_p);
  EXPECT_EQ(back.min_p, sampling.min_p);
  EXPECT_EQ(back.seed, sampling.seed);
  EXPECT_EQ(back.repetition_penalty, sampling.repetition_penalty);
  EXPECT_EQ(back.frequency_penalty, sampling.frequency_penalty);
  EXPECT_EQ(back.presence_penalty, sampling.presence_penalty);
  EXPECT_EQ(back.logit_bias, sampling.logit_bias);
  EXPECT_EQ(back.typical_p, sampling.typical_p);
  EXPECT_EQ(back.top_n_sigma, sampling.top_n_sigma);
  EXPECT_EQ(back.xtc_probability, sampling.xtc_probability);
  EXPECT_EQ(back.xtc_threshold, sampling.xtc_threshold);
  EXPECT_EQ(back.dry_multiplier, sampling.dry_multiplier);
  EXPECT_EQ(back.dry_base, sampling.dry_base);
  EXPECT_EQ(back.dry_allowed_length, sampling.dry_allowed_length);
  EXPECT_EQ(back.dry_penalty_last_n, sampling.dry_penalty_last_n);
  EXPECT_EQ(back.dry_sequence_breakers, sampling.dry_sequence_breakers);
  EXPECT_EQ(back.bad_words, sampling.bad_words);
  EXPECT_EQ(back.allowed_token_ids, sampling.allowed_token_ids);
}

TEST(ConvertTest, StartKeepsPromptAndOutputApart) {
  worker::v1::Start start;
  for (const int32_t id : {1, 2, 3}) start.mutable_prepared()->add_token_ids(id);
  start.set_prompt_length(3);
  start.add_output_token_ids(9);
  start.set_credit(7);
  const auto request = FromProto(start, absl::InfiniteDuration());
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->token_ids, (std::vector<int32_t>{1, 2, 3, 9}));
  EXPECT_EQ(request->prompt_length, 3);
  EXPECT_EQ(request->credit, 7);
  start.set_prompt_length(2);
  EXPECT_EQ(FromProto(start, absl::InfiniteDuration()).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ConvertTest, AChunkBecomesAResponse) {
  const auto tokenizer = fakes::MakeByteTokenizer();
  engine::StreamChunk chunk;
  chunk.position = 4;
  chunk.token_ids = {1, 2};
  chunk.text = "ab";
  chunk.logprobs = {{.token_id = 1, .logprob = -0.5f, .top = {{1, -0.5f}, {8, -1.0f}}}};
  worker::v1::RunResponse run;
  ToProto(chunk, *tokenizer, &run);
  EXPECT_EQ(run.finish_reason(), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_FALSE(run.has_usage());
  chunk.finish = engine::FinishReason::kStopString;
  chunk.usage.cached_tokens = 32;
  worker::v1::RunResponse last;
  ToProto(chunk, *tokenizer, &last);
  const v1::GenerateResponse relayed = ToGenerateResponse(std::move(last));
  EXPECT_EQ(relayed.position(), 4);
  EXPECT_EQ(relayed.token_ids_size(), 2);
  EXPECT_EQ(relayed.text(), "ab");
  EXPECT_EQ(relayed.logprobs(0).token(), "\x01");
  EXPECT_EQ(relayed.logprobs(0).top(1).token_id(), 8);
  EXPECT_EQ(relayed.logprobs(0).top(1).token(), "\x08");
  EXPECT_EQ(relayed.finish_reason(), v1::STOP_STRING);
  EXPECT_EQ(relayed.usage().cached_tokens(), 32);
}

// The names of metadata are part of the protocol, but are not in a .proto file.
TEST(ConvertTest, MetadataBetweenFrontAndWorkerKeepsItsNames) {
  EXPECT_STREQ(kTakenByWorker, "tidepool-taken-by-worker");
  EXPECT_STREQ(kSentByWorker, "tidepool-told-by-worker");
  EXPECT_STREQ(kWorkerDrains, "drains");
}

TEST(WireCheckTest, NamesTheBrokenString) {
  // chat { messages { role: "user" content: <broken> } }
  const std::string message = std::string("\x0a\x04user\x12\x02", 8) + "\xc3(";
  const std::string chat = std::string("\x0a\x0a") + message;
  const std::string request = std::string("\x22\x0c") + chat;
  absl::Status status = ExplainBadMessage(request, *v1::GenerateRequest::descriptor());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "chat.messages.content")) << status;
  for (const std::string& damaged : {std::string("\x0a\xff"), std::string("\xff\xff\xff"),
                                     std::string("\x12\x7f"), std::string("\x0b", 1)}) {
    status = ExplainBadMessage(damaged, *v1::GenerateRequest::descriptor());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), "damaged")) << status;
  }
}

}  // namespace
}  // namespace tidepool::service
