// A front over two workers, each with its port: failover over real gRPC.
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
  explicit Worker(const std::string& name) {
    server = StartWorkerServer(&engine.worker, engine.engine.get(),
                               {.listen = "127.0.0.1:0", .worker_name = name})
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
  WorkersTest() {
    front_ = StartFrontServer({a_.server->address(), b_.server->address()},
                              SqliteSessionStore::Open({.path = ":memory:"}).value(),
                              {.listen = "127.0.0.1:0"})
                 .value();
    channel_ = grpc::CreateChannel(front_->address(), grpc::InsecureChannelCredentials());
    inference_ = v1::Inference::NewStub(channel_);
    WaitForWorkers(2);
  }

  // Until so many workers answer the front.
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

  // Where a stream runs.
  Worker& Busy() {
    while (true) {
      for (Worker* worker : {&a_, &b_}) {
        if (worker->engine.model.forwards() > 0) return *worker;
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

  Worker a_{"a"}, b_{"b"};
  std::unique_ptr<Server> front_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> inference_;
};

TEST_F(WorkersTest, AStreamOutlivesItsWorker) {
  a_.engine.model.Hold();
  b_.engine.model.Hold();
  grpc::ClientContext context;
  const v1::GenerateRequest request = Text("Hello", 60);
  auto reader = inference_->Generate(&context, request);
  Worker& busy = Busy();
  busy.engine.model.Allow(10);
  std::vector<int32_t> tokens;
  std::string text;
  v1::GenerateResponse message;
  const auto take = [&] {
    EXPECT_EQ(message.position(), tokens.size());
    tokens.insert(tokens.end(), message.token_ids().begin(), message.token_ids().end());
    text += message.text();
  };
  while (tokens.size() < 5 && reader->Read(&message)) take();
  Worker& other = &busy == &a_ ? b_ : a_;
  // Its model stays in its step, so that the server goes while the stream is in the middle.
  std::thread killer([&] { busy.server.reset(); });
  other.engine.model.Release();
  while (reader->Read(&message)) take();
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  killer.join();
  busy.engine.model.Release();
  EXPECT_EQ(tokens.size(), 60);
  EXPECT_EQ(message.usage().completion_tokens(), 60);

  const v1::CompleteResponse solo = Complete(request);
  const auto& ids = solo.completions(0).token_ids();
  EXPECT_EQ(tokens, (std::vector<int32_t>(ids.begin(), ids.end())));
  EXPECT_EQ(text, solo.completions(0).text());
}

TEST_F(WorkersTest, ASessionGoesOnAtTheOtherWorker) {
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

}  // namespace
}  // namespace tidepool::service
