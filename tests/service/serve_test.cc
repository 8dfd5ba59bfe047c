// The whole service over real gRPC. The front and a worker with the scripted model run in one
// process.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/retry_after.h"
#include "service/front/retry_state.h"
#include "service/grpc/status.h"
#include "tests/service/serve_fixture.h"

namespace tidepool::service {
namespace {

using grpc::StatusCode;

TEST_F(ServeTest, StreamsAResponse) {
  Start();
  engine_->model.SetScript(fakes::Replies(5, WithEnd("hello w\xC3\xB6rld"), 'x'));
  const StreamedResponse response = Generate(Text("Hello", 100));
  ASSERT_TRUE(response.status.ok()) << response.status.error_message();
  EXPECT_EQ(response.text, "hello w\xC3\xB6rld");
  EXPECT_EQ(response.token_ids, WithEnd("hello w\xC3\xB6rld"));
  EXPECT_EQ(response.last().finish_reason(), v1::STOP);
  EXPECT_EQ(response.last().usage().prompt_tokens(), 5);
  EXPECT_EQ(response.last().usage().completion_tokens(), 13);
  int64_t position = 0;
  for (const v1::GenerateResponse& message : response.messages) {
    EXPECT_EQ(message.position(), position);
    EXPECT_FALSE(message.request_id().empty());
    position += message.token_ids_size();
  }
}

TEST_F(ServeTest, CompleteEqualsGenerate) {
  Start();
  v1::GenerateRequest request = Text("Hello", 40);
  request.set_logprobs(true);
  request.set_top_logprobs(2);
  const StreamedResponse streamed = Generate(request);
  grpc::ClientContext context;
  v1::CompleteResponse complete;
  ASSERT_TRUE(inference_->Complete(&context, request, &complete).ok());
  ASSERT_EQ(complete.completions_size(), 1);
  const v1::Completion& completion = complete.completions(0);
  EXPECT_EQ(completion.text(), streamed.text);
  EXPECT_EQ(std::vector<int32_t>(completion.token_ids().begin(), completion.token_ids().end()),
            streamed.token_ids);
  EXPECT_EQ(completion.finish_reason(), v1::LENGTH);
  ASSERT_EQ(completion.logprobs_size(), 40);
  EXPECT_EQ(completion.logprobs(0).top_size(), 2);
  EXPECT_EQ(complete.usage().completion_tokens(), 40);
}

TEST_F(ServeTest, ModelsAndTokens) {
  Start();
  grpc::ClientContext list_context;
  v1::ListModelsResponse models;
  ASSERT_TRUE(inference_->ListModels(&list_context, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 1);
  EXPECT_EQ(models.models(0).name(), "scripted");
  EXPECT_EQ(models.models(0).context_length(), 2048);
  EXPECT_TRUE(models.models(0).has_chat_template());

  grpc::ClientContext get_context;
  v1::GetModelRequest get;
  get.set_model("other");
  v1::Model model;
  const grpc::Status unknown = inference_->GetModel(&get_context, get, &model);
  EXPECT_EQ(unknown.error_code(), StatusCode::NOT_FOUND);
  EXPECT_TRUE(absl::StrContains(unknown.error_message(), "scripted")) << unknown.error_message();

  grpc::ClientContext tokenize_context;
  v1::TokenizeRequest tokenize;
  tokenize.set_text("a<|start|>");
  tokenize.set_parse_special(true);
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(inference_->Tokenize(&tokenize_context, tokenize, &tokens).ok());
  ASSERT_EQ(tokens.token_ids_size(), 2);
  EXPECT_EQ(tokens.token_ids(1), fakes::kStartToken);

  grpc::ClientContext detokenize_context;
  v1::DetokenizeRequest detokenize;
  detokenize.add_token_ids('a');
  detokenize.add_token_ids(9999);
  v1::DetokenizeResponse text;
  EXPECT_EQ(inference_->Detokenize(&detokenize_context, detokenize, &text).error_code(),
            StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServeTest, CreditIsRenewedDuringALongResponse) {
  Start();
  const StreamedResponse response = Generate(LongText());
  EXPECT_TRUE(response.status.ok()) << response.status.error_message();
  EXPECT_EQ(response.token_ids.size(), 2000);
  EXPECT_EQ(response.last().finish_reason(), v1::LENGTH);
}

TEST_F(ServeTest, ACancelStopsTheWork) {
  Start();
  engine_->model.Hold();
  grpc::ClientContext context;
  auto reader = inference_->Generate(&context, LongText());
  engine_->model.Allow(10);
  v1::GenerateResponse message;
  int64_t tokens = 0;
  while (tokens < 5 && reader->Read(&message)) tokens += message.token_ids_size();
  context.TryCancel();
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  engine_->model.Release();
  WaitIdle();
  const v1::GetStatsResponse stats = Stats();
  ASSERT_EQ(stats.workers_size(), 1);
  EXPECT_EQ(stats.workers(0).requests_cancelled_total(), 1);
  EXPECT_EQ(stats.workers(0).kv_blocks_free(), stats.workers(0).kv_blocks_total());
  EXPECT_LT(stats.workers(0).generated_tokens_total(), 2000);
}

TEST_F(ServeTest, ADeadlineStopsTheWork) {
  Start();
  engine_->model.Hold();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  auto reader = inference_->Generate(&context, LongText());
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::DEADLINE_EXCEEDED);
  engine_->model.Release();
  WaitIdle();
  EXPECT_LT(Stats().workers(0).generated_tokens_total(), 2000);
}

TEST_F(ServeTest, AFullQueueSaysWhenToComeBack) {
  Start({.max_queued = 0});
  engine_->model.Hold();
  // These are more requests than may run at the same time, so some are refused.
  constexpr int kStreams = 80;
  grpc::ClientContext contexts[kStreams];
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (grpc::ClientContext& context : contexts) {
    readers.push_back(inference_->Generate(&context, Text("x", 1)));
  }
  while (Stats().front().requests_failed_total() == 0) std::this_thread::yield();
  engine_->model.Release();
  int refused = 0;
  for (int i = 0; i < kStreams; ++i) {
    v1::GenerateResponse message;
    while (readers[i]->Read(&message)) {
    }
    const grpc::Status status = readers[i]->Finish();
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    const std::optional<absl::Duration> wait = base::RetryAfterOf(FromGrpcStatus(status));
    ASSERT_TRUE(wait.has_value());
    const auto& trailer = contexts[i].GetServerTrailingMetadata();
    const auto pushback = trailer.find("grpc-retry-pushback-ms");
    ASSERT_NE(pushback, trailer.end());
    EXPECT_EQ(std::string(pushback->second.data(), pushback->second.size()),
              absl::StrCat(absl::ToInt64Milliseconds(*wait)));
  }
  EXPECT_GT(refused, 0);
}

// If a worker cannot read an expert, the front retries, and then returns the worker's error, which
// names the expert. This also works after the client has received tokens. Other requests are not
// affected.
TEST_F(ServeTest, AnExpertThatIsNotToBeHadIsNamedAfterAFewAttempts) {
  Start();
  const v1::GenerateRequest request = Text("The tide", 40);
  const StreamedResponse whole = Generate(request);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  const std::string error = "m.tidepack: layer 3, expert 7 cannot be read: Input/output error";
  int64_t failed = 0;
  for (const absl::StatusCode code :
       {absl::StatusCode::kUnavailable, absl::StatusCode::kDataLoss}) {
    for (const int64_t before : {0, 12}) {
      SCOPED_TRACE(absl::StrCat(absl::StatusCodeToString(code), " after ", before));
      if (before == 0) engine_->model.SetFailure(absl::Status(code, error));
      engine_->model.Hold();
      grpc::ClientContext context;
      auto reader = inference_->Generate(&context, request);
      engine_->model.Allow(before);
      std::vector<int32_t> tokens;
      v1::GenerateResponse message;
      const auto take = [&] {
        tokens.insert(tokens.end(), message.token_ids().begin(), message.token_ids().end());
      };
      while (static_cast<int64_t>(tokens.size()) < before && reader->Read(&message)) take();
      engine_->model.SetFailure(absl::Status(code, error));
      engine_->model.Release();
      while (reader->Read(&message)) take();
      const grpc::Status status = reader->Finish();
      EXPECT_EQ(static_cast<int>(status.error_code()), static_cast<int>(code));
      EXPECT_EQ(status.error_message(), error);
      ASSERT_GE(tokens.size(), before);
      ASSERT_LT(tokens.size(), whole.token_ids.size());
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), whole.token_ids.begin()));
      WaitIdle();
      failed += RetryState::kMaxAttempts;
      EXPECT_EQ(Stats().workers(0).requests_failed_total(), failed);
      engine_->model.SetFailure(absl::OkStatus());
      EXPECT_EQ(Generate(request).token_ids, whole.token_ids);
    }
  }
}

TEST_F(ServeTest, ARequestIdLeadsToItsResponse) {
  Start();
  engine_->model.Hold();
  v1::GenerateRequest request = Text("Hello", 10);
  request.set_request_id("mine");
  grpc::ClientContext context;
  auto reader = inference_->Generate(&context, request);
  engine_->model.Allow(2);
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.request_id(), "mine");
  v1::GenerateRequest other = request;
  other.set_text("Bye");
  EXPECT_EQ(Generate(other).status.error_code(), StatusCode::ALREADY_EXISTS);
  engine_->model.Release();
  std::string text = message.text();
  while (reader->Read(&message)) text += message.text();
  EXPECT_TRUE(reader->Finish().ok());
  const StreamedResponse again = Generate(request);
  EXPECT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_EQ(again.text, text);
  EXPECT_EQ(Stats().workers(0).generated_tokens_total(), 10);
}

TEST_F(ServeTest, SeveralResponsesCountTheirPromptOnce) {
  Start();
  v1::GenerateRequest request = Text("Hello", 20);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(5);
  std::vector<StreamedResponse> alone;
  for (uint64_t i = 0; i < 3; ++i) {
    v1::GenerateRequest one = request;
    one.mutable_sampling()->set_seed(5 + i);
    alone.push_back(Generate(one));
  }
  EXPECT_NE(alone[0].token_ids, alone[1].token_ids);
  request.set_n(3);
  request.set_echo(true);
  request.set_prompt_logprobs(1);
  grpc::ClientContext context;
  v1::CompleteResponse response;
  const grpc::Status status = inference_->Complete(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.completions_size(), 3);
  for (int i = 0; i < 3; ++i) {
    const v1::Completion& completion = response.completions(i);
    EXPECT_EQ(completion.index(), i);
    EXPECT_EQ(completion.finish_reason(), v1::LENGTH);
    EXPECT_EQ(std::vector<int32_t>(completion.token_ids().begin(), completion.token_ids().end()),
              alone[i].token_ids);
    EXPECT_EQ(completion.text(), alone[i].text);
  }
  EXPECT_EQ(response.usage().prompt_tokens(), 5);
  EXPECT_EQ(response.usage().completion_tokens(), 60);
  EXPECT_EQ(response.prompt_text(), "Hello");
  EXPECT_EQ(response.prompt_token_ids_size(), 5);
  ASSERT_EQ(response.prompt_logprobs_size(), 5);
  EXPECT_EQ(response.prompt_logprobs(0).rank(), 0);
  EXPECT_GE(response.prompt_logprobs(4).rank(), 1);
  EXPECT_EQ(response.prompt_logprobs(4).token(), "o");
  EXPECT_EQ(response.prompt_logprobs(4).top_size(), 1);
}

// Long because it is a table of cases.
TEST_F(ServeTest, BadRequestsGetOneClearStatus) {
  Start({.context = 256});
  struct Case {
    const char* name;
    std::function<void(v1::GenerateRequest*)> spoil;
    StatusCode code;
    const char* says;
  };
  const Case cases[] = {
      {"no input", [](auto* r) { r->clear_text(); }, StatusCode::INVALID_ARGUMENT, "input"},
      {"empty text", [](auto* r) { r->set_text(""); }, StatusCode::INVALID_ARGUMENT, "text"},
      {"NaN", [](auto* r) { r->mutable_sampling()->set_temperature(NAN); },
       StatusCode::INVALID_ARGUMENT, "temperature"},
      {"negative limit", [](auto* r) { r->mutable_stopping()->set_max_tokens(-1); },
       StatusCode::INVALID_ARGUMENT, "max_tokens"},
      {"typical_p", [](auto* r) { r->mutable_sampling()->set_typical_p(0); },
       StatusCode::INVALID_ARGUMENT, "typical_p"},
      {"n", [](auto* r) { r->set_n(129); }, StatusCode::INVALID_ARGUMENT, "1 to 128"},
      {"role",
       [](auto* r) {
         v1::ChatMessage* message = r->mutable_chat()->add_messages();
         message->set_role("usr");
       },
       StatusCode::INVALID_ARGUMENT, "chat.messages[0].role is 'usr'"},
      {"adapter", [](auto* r) { r->set_adapter("a"); }, StatusCode::UNIMPLEMENTED, "adapter"},
      {"model", [](auto* r) { r->set_model("gpt-5"); }, StatusCode::NOT_FOUND, "gpt-5"},
      {"session", [](auto* r) { r->set_session_id("nowhere"); }, StatusCode::NOT_FOUND, "nowhere"},
      {"session id", [](auto* r) { r->set_session_id("a b"); }, StatusCode::INVALID_ARGUMENT,
       "session_id"},
      {"token id", [](auto* r) { r->mutable_token_ids()->add_ids(-5); },
       StatusCode::INVALID_ARGUMENT, "-5"},
      {"stop id", [](auto* r) { r->mutable_stopping()->add_stop_token_ids(4000); },
       StatusCode::INVALID_ARGUMENT, "4000"},
      {"past the context", [](auto* r) { r->set_text(std::string(300, 'x')); },
       StatusCode::INVALID_ARGUMENT, "context"},
      {"10 MB", [](auto* r) { r->set_text(std::string(10 << 20, 'x')); },
       StatusCode::INVALID_ARGUMENT, "context"},
      {"empty chat", [](auto* r) { r->mutable_chat(); }, StatusCode::INVALID_ARGUMENT,
       "chat.messages"},
      {"tools",
       [](auto* r) {
         r->mutable_chat()->add_messages()->set_role("user");
         r->mutable_chat()->set_tools_json("{");
       },
       StatusCode::INVALID_ARGUMENT, "tools_json"},
      {"logprobs", [](auto* r) { r->set_top_logprobs(3); }, StatusCode::INVALID_ARGUMENT,
       "logprobs"},
      {"processed logprobs", [](auto* r) { r->set_processed_logprobs(true); },
       StatusCode::INVALID_ARGUMENT, "processed_logprobs needs logprobs"},
      {"priority", [](auto* r) { r->set_priority(1000); }, StatusCode::INVALID_ARGUMENT,
       "priority"},
      {"request id", [](auto* r) { r->set_request_id(std::string(200, 'r')); },
       StatusCode::INVALID_ARGUMENT, "request_id"},
  };
  for (const Case& c : cases) {
    v1::GenerateRequest request = Text("Hello", 5);
    c.spoil(&request);
    const StreamedResponse response = Generate(request);
    EXPECT_EQ(response.status.error_code(), c.code)
        << c.name << ": " << response.status.error_message();
    EXPECT_TRUE(absl::StrContains(response.status.error_message(), c.says))
        << c.name << ": " << response.status.error_message();
    EXPECT_TRUE(response.messages.empty()) << c.name;
  }
  EXPECT_TRUE(Generate(Text("Hello", 5)).status.ok());
}

TEST_F(ServeTest, ManyStreamsEachEqualTheirSoloRun) {
  Start();
  constexpr int kStreams = 32;
  std::vector<std::vector<int32_t>> solo(kStreams);
  const auto request = [](int i) {
    return Text(absl::StrCat("prompt ", i, std::string(i * 7, 'q')), 20 + 5 * i);
  };
  for (int i = 0; i < kStreams; ++i) solo[i] = Generate(request(i)).token_ids;
  std::vector<std::thread> threads;
  std::vector<std::vector<int32_t>> together(kStreams);
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] { together[i] = Generate(request(i)).token_ids; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, solo);
}

TEST_F(ServeTest, ShutdownDrainsThenCancels) {
  Start();
  engine_->model.Hold();
  grpc::ClientContext context;
  auto reader = inference_->Generate(&context, Text("Hello", 5));
  engine_->model.Allow(2);
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  std::thread stopper([this] { server_->Shutdown({.drain = absl::Seconds(30)}); });
  // From now on, every new request is refused, but the old stream continues.
  grpc::Status listed;
  do {
    grpc::ClientContext list_context;
    v1::ListModelsResponse models;
    listed = inference_->ListModels(&list_context, {}, &models);
  } while (listed.ok());
  EXPECT_EQ(listed.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Generate(Text("me too", 1)).status.error_code(), StatusCode::UNAVAILABLE);
  engine_->model.Release();
  while (reader->Read(&message)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(message.finish_reason(), v1::LENGTH);
  stopper.join();
}

TEST_F(ServeTest, ShutdownCancelsStreamsThatDoNotEnd) {
  Start();
  engine_->model.Hold();
  grpc::ClientContext context;
  auto reader = inference_->Generate(&context, Text("Hello", 500));
  engine_->model.Allow(2);
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  std::thread stopper([this] { server_->Shutdown({.drain = absl::Milliseconds(100)}); });
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::UNAVAILABLE);
  engine_->model.Release();
  stopper.join();
}

TEST_F(ServeTest, WorksWithoutAPort) {
  engine_ = std::make_unique<TestEngine>();
  auto server = StartServe(&engine_->worker, engine_->engine.get(),
                           SqliteSessionStore::Open({.path = ":memory:"}).value(), {.listen = ""});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->port(), 0);
  inference_ = v1::Inference::NewStub((*server)->InProcessChannel());
  EXPECT_EQ(Generate(Text("Hello", 30)).token_ids.size(), 30);
  (*server)->Shutdown({});
}

TEST_F(ServeTest, APortIsTakenOnce) {
  Start();
  TestEngine other;
  const auto second =
      StartWorkerServer(&other.worker, other.engine.get(), {.listen = server_->address()});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable) << second.status();
  const auto bad = StartWorkerServer(&other.worker, other.engine.get(), {.listen = "localhost"});
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument) << bad.status();
}

// A stream that is not read for too long ends, and its slot is free. If the client reads later, it
// gets the reason.
TEST_F(ServeTest, AStreamThatIsNotReadForTooLongEnds) {
  front_limits_.taken_within = absl::Seconds(2);
  Start();
  v1::GenerateRequest request = LongText();
  request.set_logprobs(true);
  request.set_top_logprobs(20);
  // The flow-control window stays at 64 KiB, so messages that the client does not read are not
  // sent.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = v1::Inference::NewStub(
      grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, request);
  while (engine_->model.forwards() == 0) std::this_thread::yield();
  while (Stats().front().streams_running() > 0) std::this_thread::yield();
  v1::GenerateResponse message;
  int64_t tokens = 0;
  while (reader->Read(&message)) tokens += message.token_ids_size();
  EXPECT_LT(tokens, 2000);
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED) << status.error_message();
}

}  // namespace
}  // namespace tidepool::service
