// A front and workers on their own ports: failover over real gRPC.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "service/server.h"
#include "service/store/sqlite_session_store.h"
#include "tests/service/test_server.h"
#include "tidepool/v1/admin.grpc.pb.h"
#include "tidepool/v1/inference.grpc.pb.h"
#include "tidepool/v1/sessions.grpc.pb.h"

namespace tidepool::service {
namespace {

struct Worker {
  Worker(const std::string& name, absl::Duration stall_timeout) {
    server = StartWorkerServer(
                 &engine.worker, engine.engine.get(),
                 {.listen = "127.0.0.1:0", .worker_name = name, .stall_timeout = stall_timeout})
                 .value();
  }
  void Kill() {
    engine.model.Release();
    server.reset();
  }
  TestEngine engine;
  std::unique_ptr<Server> server;
};

class WorkersTest : public testing::Test {
 protected:
  explicit WorkersTest(int workers = 2, absl::Duration stall_timeout = absl::Minutes(1)) {
    std::vector<std::string> addresses;
    for (int i = 0; i < workers; ++i) {
      workers_.push_back(
          std::make_unique<Worker>(std::string(1, static_cast<char>('a' + i)), stall_timeout));
      addresses.push_back(workers_.back()->server->address());
    }
    front_ =
        StartFrontServer(SqliteSessionStore::Open({.path = ":memory:"}).value(),
                         {.listen = "127.0.0.1:0", .live = {.workers = {.addresses = addresses}}})
            .value();
    channel_ = grpc::CreateChannel(front_->address(), grpc::InsecureChannelCredentials());
    inference_ = v1::Inference::NewStub(channel_);
    WaitForWorkers(workers);
  }

  // Waits until the front gets responses from `wanted` workers.
  void WaitForWorkers(int wanted) {
    auto admin = v1::Admin::NewStub(channel_);
    int answering = -1;
    while (answering != wanted) {
      grpc::ClientContext context;
      v1::GetStatsResponse stats;
      ASSERT_TRUE(admin->GetStats(&context, {}, &stats).ok());
      answering = 0;
      for (const v1::WorkerStats& worker : stats.workers()) {
        answering += worker.status_code() == 0 && !worker.worker_id().empty();
      }
    }
  }

  static v1::GenerateRequest Text(const std::string& text, int64_t max_tokens) {
    v1::GenerateRequest request;
    request.set_text(text);
    request.mutable_stopping()->set_max_tokens(max_tokens);
    request.mutable_stopping()->set_ignore_eos(true);
    return request;
  }

  // Returns the worker that runs a stream.
  Worker& Busy() {
    while (true) {
      for (const auto& worker : workers_) {
        if (worker->server != nullptr && worker->engine.model.forwards() > 0) return *worker;
      }
      std::this_thread::yield();
    }
  }

  v1::CompleteResponse Complete(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    v1::CompleteResponse response;
    const grpc::Status status = inference_->Complete(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  void HoldModels() {
    for (const auto& worker : workers_) worker->engine.model.Hold();
  }

  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<Server> front_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> inference_;
};

// What a client has received from a stream until now.
struct Received {
  std::vector<int32_t> tokens;
  std::string text;
  v1::GenerateResponse last;

  // Reads the next message. Returns false at the end of the stream. Checks that positions are
  // consecutive.
  bool Read(grpc::ClientReader<v1::GenerateResponse>& reader) {
    if (!reader.Read(&last)) return false;
    EXPECT_EQ(last.position(), tokens.size());
    tokens.insert(tokens.end(), last.token_ids().begin(), last.token_ids().end());
    text += last.text();
    return true;
  }
};

TEST_F(WorkersTest, AStreamOutlivesItsWorker) {
  HoldModels();
  grpc::ClientContext context;
  const v1::GenerateRequest request = Text("Hello", 60);
  auto reader = inference_->Generate(&context, request);
  Worker& busy = Busy();
  busy.engine.model.Allow(10);
  Received received;
  while (received.tokens.size() < 5 && received.Read(*reader)) {
  }
  Worker& other = *workers_[&busy == workers_[0].get() ? 1 : 0];
  // The model is still in a step, so the server stops in the middle of the stream.
  std::thread killer([&] { busy.server.reset(); });
  other.engine.model.Release();
  while (received.Read(*reader)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  killer.join();
  busy.engine.model.Release();
  EXPECT_EQ(received.tokens.size(), 60);
  EXPECT_EQ(received.last.usage().completion_tokens(), 60);

  const v1::CompleteResponse solo = Complete(request);
  const auto& ids = solo.completions(0).token_ids();
  EXPECT_EQ(received.tokens, (std::vector<int32_t>(ids.begin(), ids.end())));
  EXPECT_EQ(received.text, solo.completions(0).text());
}

TEST_F(WorkersTest, AStreamLeavesAWorkerThatDrains) {
  HoldModels();
  grpc::ClientContext context;
  const v1::GenerateRequest request = Text("Hello", 60);
  auto reader = inference_->Generate(&context, request);
  Worker& busy = Busy();
  busy.engine.model.Allow(10);
  Received received;
  while (received.tokens.size() < 5 && received.Read(*reader)) {
  }
  Worker& other = *workers_[&busy == workers_[0].get() ? 1 : 0];
  other.engine.model.Release();
  // The model is held in a step, so the stream continues on the other worker.
  busy.server->Shutdown({.drain = absl::Milliseconds(100)});
  while (received.Read(*reader)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  busy.engine.model.Release();
  const v1::CompleteResponse solo = Complete(request);
  const auto& ids = solo.completions(0).token_ids();
  EXPECT_EQ(received.tokens, (std::vector<int32_t>(ids.begin(), ids.end())));

  grpc::ClientContext stats_context;
  v1::GetStatsResponse stats;
  ASSERT_TRUE(v1::Admin::NewStub(channel_)->GetStats(&stats_context, {}, &stats).ok());
  EXPECT_EQ(stats.front().migrations_total(), 1);
  EXPECT_EQ(stats.front().failovers_total(), 0);
}

TEST_F(WorkersTest, AWorkerWithoutAnotherEndsItsStreamsInItsDrainTime) {
  workers_[1]->Kill();
  WaitForWorkers(1);
  workers_[0]->engine.model.Hold();
  grpc::ClientContext context;
  auto reader = inference_->Generate(&context, Text("Hello", 60));
  Worker& busy = Busy();
  busy.engine.model.Allow(5);
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  std::thread stopper([&] { busy.server->Shutdown({.drain = absl::InfiniteDuration()}); });
  busy.engine.model.Release();
  int tokens = message.token_ids_size();
  while (reader->Read(&message)) tokens += message.token_ids_size();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(tokens, 60);
  stopper.join();
}

TEST_F(WorkersTest, ASessionContinuesAtTheOtherWorker) {
  auto sessions = v1::Sessions::NewStub(channel_);
  grpc::ClientContext context;
  v1::Session session;
  ASSERT_TRUE(sessions->CreateSession(&context, {}, &session).ok());
  v1::GenerateRequest first = Text(std::string(100, 'p'), 60);
  first.set_session_id(session.session_id());
  Complete(first);
  Worker& home = Busy();
  v1::GenerateRequest second = Text("more", 10);
  second.set_session_id(session.session_id());
  const v1::CompleteResponse warm = Complete(second);
  EXPECT_GE(warm.usage().cached_tokens(), 128);

  home.Kill();
  WaitForWorkers(1);
  v1::GenerateRequest third = Text("and more", 10);
  third.set_session_id(session.session_id());
  const v1::CompleteResponse cold = Complete(third);
  EXPECT_EQ(cold.usage().prompt_tokens(), 182);
  EXPECT_EQ(cold.usage().cached_tokens(), 0);
  EXPECT_EQ(cold.completions(0).token_ids_size(), 10);
}

class StuckWorkerTest : public WorkersTest {
 protected:
  StuckWorkerTest() : WorkersTest(2, absl::Milliseconds(200)) {}
};

TEST_F(StuckWorkerTest, ItsStreamsAndNewOnesGoToTheOther) {
  HoldModels();
  grpc::ClientContext context;
  const v1::GenerateRequest request = Text("Hello", 60);
  auto reader = inference_->Generate(&context, request);
  Worker& stuck = Busy();
  stuck.engine.model.Allow(10);
  Worker& other = *workers_[&stuck == workers_[0].get() ? 1 : 0];
  other.engine.model.Release();
  Received received;
  while (received.Read(*reader)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(received.tokens.size(), 60);
  // The states of the stuck worker still arrive, and say that it is stuck. The states of the other
  // worker report its load.
  const int64_t forwards = stuck.engine.model.forwards();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Complete(Text("Hi", 5)).completions(0).token_ids_size(), 5);
  }
  EXPECT_EQ(stuck.engine.model.forwards(), forwards);
  // When the worker makes progress again, and there is no other worker, it is used like any worker.
  stuck.engine.model.Release();
  other.Kill();
  EXPECT_EQ(Complete(Text("Hi", 5)).completions(0).token_ids_size(), 5);
}

class FourWorkersTest : public WorkersTest {
 protected:
  FourWorkersTest() : WorkersTest(4) {}
};

TEST_F(FourWorkersTest, APromptThatCrashedThreeWorkersDoesNotReachTheFourth) {
  HoldModels();
  grpc::ClientContext context;
  const v1::GenerateRequest request = Text("poison", 60);
  auto reader = inference_->Generate(&context, request);
  for (int crash = 0; crash < 3; ++crash) {
    // The server stops in the middle of its first step. The results of the model are discarded.
    Worker& busy = Busy();
    busy.server.reset();
    busy.engine.model.Release();
  }
  v1::GenerateResponse message;
  EXPECT_FALSE(reader->Read(&message));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(),
              testing::StartsWith("3 workers crashed while they computed this prompt, one of them "
                                  "while no other request could be the cause; "));

  for (const auto& worker : workers_) worker->engine.model.Release();
  grpc::ClientContext again_context;
  v1::CompleteResponse response;
  const grpc::Status again = inference_->Complete(&again_context, request, &response);
  EXPECT_EQ(again.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(again.error_message(),
              testing::StartsWith("workers crashed while they computed this prompt; it is "));
  EXPECT_EQ(Complete(Text("sound", 10)).completions(0).token_ids_size(), 10);
}

TEST_F(FourWorkersTest, NorDoesOneThatCrashesThemInTheMiddleOfItsResponse) {
  HoldModels();
  grpc::ClientContext context;
  auto reader = inference_->Generate(&context, Text("poison", 60));
  Received received;
  for (int crash = 0; crash < 3; ++crash) {
    Worker& busy = Busy();
    if (crash == 0) busy.engine.model.Allow(20);
    while (received.tokens.size() < 15) ASSERT_TRUE(received.Read(*reader));
    busy.server.reset();
    busy.engine.model.Release();
  }
  while (received.Read(*reader)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL) << status.error_message();
  EXPECT_THAT(status.error_message(),
              testing::StartsWith("3 workers crashed while they computed this prompt, one of them "
                                  "while no other request could be the cause; "));
  EXPECT_LT(received.tokens.size(), 60);
  for (const auto& worker : workers_) worker->engine.model.Release();
  EXPECT_EQ(Complete(Text("sound", 10)).completions(0).token_ids_size(), 10);
}

}  // namespace
}  // namespace tidepool::service
