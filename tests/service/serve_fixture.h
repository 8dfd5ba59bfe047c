// A server with a front and a worker in one process over real gRPC, and stubs of its clients.
#ifndef TIDEPOOL_TESTS_SERVICE_SERVE_FIXTURE_H_
#define TIDEPOOL_TESTS_SERVICE_SERVE_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "service/server.h"
#include "service/store/sqlite_session_store.h"
#include "tests/fakes/byte_tokenizer.h"
#include "tests/service/test_server.h"
#include "tidepool/v1/admin.grpc.pb.h"
#include "tidepool/v1/inference.grpc.pb.h"
#include "tidepool/v1/sessions.grpc.pb.h"

namespace tidepool::service {

struct StreamedResponse {
  grpc::Status status;
  std::vector<v1::GenerateResponse> messages;
  std::string text;
  std::vector<int32_t> token_ids;

  const v1::GenerateResponse& last() const { return messages.back(); }
};

class ServeTest : public testing::Test {
 protected:
  void Start(const TestEngineOptions& options = {}) {
    engine_ = std::make_unique<TestEngine>(options);
    auto store = SqliteSessionStore::Open({.path = store_path_});
    ASSERT_TRUE(store.ok()) << store.status();
    auto server = StartServe(&engine_->worker, engine_->engine.get(), *std::move(store),
                             {.listen = "127.0.0.1:0",
                              .http = http_,
                              .web = web_,
                              .live = {.front_limits = front_limits_},
                              .authenticator = authenticator_,
                              .http_comment_every = http_comment_every_,
                              .stall_timeout = stall_timeout_,
                              .log = log_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    inference_ = v1::Inference::NewStub(channel_);
    sessions_ = v1::Sessions::NewStub(channel_);
    admin_ = v1::Admin::NewStub(channel_);
  }

  StreamedResponse Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    auto reader = inference_->Generate(&context, request);
    StreamedResponse response;
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
      response.text += message.text();
      response.token_ids.insert(response.token_ids.end(), message.token_ids().begin(),
                                message.token_ids().end());
      response.messages.push_back(message);
    }
    response.status = reader->Finish();
    return response;
  }

  static v1::GenerateRequest Text(const std::string& text, int64_t max_tokens) {
    v1::GenerateRequest request;
    request.set_text(text);
    request.mutable_stopping()->set_max_tokens(max_tokens);
    return request;
  }

  // A request for exactly 2,000 tokens, which is far more than a stream's credit.
  static v1::GenerateRequest LongText() {
    v1::GenerateRequest request = Text("Hello", 2000);
    request.mutable_stopping()->set_ignore_eos(true);
    return request;
  }

  std::string CreateSession() {
    grpc::ClientContext context;
    v1::Session session;
    const grpc::Status status = sessions_->CreateSession(&context, {}, &session);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return session.session_id();
  }

  v1::Session GetSession(const std::string& id) {
    grpc::ClientContext context;
    v1::GetSessionRequest request;
    request.set_session_id(id);
    v1::Session session;
    EXPECT_TRUE(sessions_->GetSession(&context, request, &session).ok());
    return session;
  }

  v1::GetStatsResponse Stats() {
    grpc::ClientContext context;
    v1::GetStatsResponse stats;
    const grpc::Status status = admin_->GetStats(&context, {}, &stats);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return stats;
  }

  // Waits until the engine is idle, not for a fixed time.
  void WaitIdle() { ASSERT_TRUE(engine_->engine->WaitIdle(absl::Seconds(20))); }

  const Authenticator* authenticator_ = nullptr;
  FrontLimits front_limits_;
  absl::Duration http_comment_every_ = absl::Seconds(15);
  std::string store_path_ = ":memory:";
  absl::Duration stall_timeout_ = absl::Minutes(1);
  LogSink log_;
  std::string http_ = "127.0.0.1:0";
  WebAccess web_;
  std::unique_ptr<TestEngine> engine_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Sessions::Stub> sessions_;
  std::unique_ptr<v1::Admin::Stub> admin_;
};

inline std::vector<int32_t> WithEnd(const std::string& text) {
  std::vector<int32_t> tokens = fakes::ByteTokens(text);
  tokens.push_back(fakes::kEndToken);
  return tokens;
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_SERVE_FIXTURE_H_
