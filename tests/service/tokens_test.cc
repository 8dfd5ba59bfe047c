// Access control over real gRPC and HTTP: without a token, with an unknown token, and with a token
// of each role.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/base/mutex.h"
#include "service/auth/client_security.h"
#include "service/auth/token_table.h"
#include "tests/service/http/raw_client.h"
#include "tests/service/serve_fixture.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::service {
namespace {

using grpc::StatusCode;

// Each token is the name of its principal. Thread-safe.
class Doorkeeper final : public Authenticator {
 public:
  absl::StatusOr<Caller> Identify(const Credentials& credentials, absl::Time now) const override {
    auto token = TokenOf(credentials);
    if (!token.ok()) return token.status();
    base::MutexLock lock(&mutex_);
    if (*token == revoked_) return absl::UnauthenticatedError("the token was revoked");
    return table_->Find(*token, now);
  }

  void OnRefused(const absl::Status&) const override { ++refused; }

  mutable std::atomic<int> refused = 0;

  // From now on, the token of this principal is refused. The token that was revoked before is
  // accepted again.
  void Revoke(const std::string& principal) {
    base::MutexLock lock(&mutex_);
    revoked_ = principal;
  }

 private:
  static std::string Line(const std::string& principal, absl::string_view role) {
    return absl::StrCat(principal, " ", role, " ", HashText(HashToken(principal)), "\n");
  }
  const absl::StatusOr<TokenTable> table_ = TokenTable::Parse(absl::StrCat(
      Line("alice", "user"), Line("bob", "user"), Line("ops", "admin"), Line("front", "front"),
      "carol user ", HashText(HashToken("carol")), " concurrency=1\n"));
  mutable base::Mutex mutex_;
  std::string revoked_ TIDEPOOL_GUARDED_BY(mutex_);
};

// If `token` is "", sends no token.
std::unique_ptr<grpc::ClientContext> As(const std::string& token) {
  auto context = std::make_unique<grpc::ClientContext>();
  if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
  return context;
}

// Returns the status of an empty request to this method. In all our RPCs, the client sends one
// message.
grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                  const std::string& token) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const auto context = As(token);
  const grpc::ByteBuffer request(nullptr, 0);
  auto call = stub.PrepareUnaryCall(context.get(), method, request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  return status;
}

std::vector<std::string> MethodsOf(const google::protobuf::FileDescriptor* file) {
  std::vector<std::string> methods;
  for (int i = 0; i < file->service_count(); ++i) {
    const google::protobuf::ServiceDescriptor* service = file->service(i);
    for (int j = 0; j < service->method_count(); ++j) {
      methods.push_back(absl::StrCat("/", service->full_name(), "/", service->method(j)->name()));
    }
  }
  EXPECT_FALSE(methods.empty());
  return methods;
}

void ExpectRefused(const grpc::Status& status, StatusCode code, const std::string& what) {
  EXPECT_EQ(status.error_code(), code) << what << ": " << status.error_message();
  EXPECT_FALSE(status.error_message().empty()) << what;
}

class TokensTest : public ServeTest {
 protected:
  TokensTest() { authenticator_ = &doorkeeper_; }
  // Destroys the servers before the authenticator, because they use it.
  ~TokensTest() override {
    server_.reset();
    worker_.reset();
  }

  int HttpStatus(const std::string& request) {
    const std::string address = server_->http_address();
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    RawClient client(port);
    client.Send(request);
    return client.ReadResponse().status;
  }

  // Starts a worker with its own port, and a front that calls it with the token `front`.
  void StartApart() {
    engine_ = std::make_unique<TestEngine>();
    auto worker = StartWorkerServer(&engine_->worker, engine_->engine.get(),
                                    {.listen = "127.0.0.1:0", .authenticator = &doorkeeper_});
    ASSERT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
    const std::string path = testing::TempDir() + "/front.token";
    std::ofstream(path) << "front\n";
    auto security = ClientSecurity::Open({.token_file = path});
    ASSERT_TRUE(security.ok()) << security.status();
    auto front = StartFrontServer(SqliteSessionStore::Open({.path = ":memory:"}).value(),
                                  {.listen = "127.0.0.1:0",
                                   .live = {.workers = {.addresses = {worker_->address()}}},
                                   .worker_security = *std::move(security),
                                   .authenticator = &doorkeeper_});
    ASSERT_TRUE(front.ok()) << front.status();
    server_ = *std::move(front);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    inference_ = v1::Inference::NewStub(channel_);
  }

  // If there is no worker, waits for one.
  grpc::Status CompleteAs(const std::string& principal) {
    v1::CompleteResponse response;
    const grpc::Status status =
        inference_->Complete(As(principal).get(), Text("Hello", 2), &response);
    EXPECT_EQ(response.usage().completion_tokens(), status.ok() ? 2 : 0);
    return status;
  }

  Doorkeeper doorkeeper_;
  std::unique_ptr<Server> worker_;
};

TEST_F(TokensTest, EveryRpcOfAFrontAsksForAToken) {
  Start();
  std::vector<std::string> clients = MethodsOf(v1::GenerateRequest::descriptor()->file());
  for (std::string& method : MethodsOf(v1::Session::descriptor()->file())) {
    clients.push_back(std::move(method));
  }
  for (const std::string& method : clients) {
    ExpectRefused(Call(channel_, method, ""), StatusCode::UNAUTHENTICATED, method);
    ExpectRefused(Call(channel_, method, "mallory"), StatusCode::UNAUTHENTICATED, method);
    ExpectRefused(Call(channel_, method, "front"), StatusCode::PERMISSION_DENIED, method);
  }
  for (const std::string& method : MethodsOf(v1::GetStatsRequest::descriptor()->file())) {
    ExpectRefused(Call(channel_, method, ""), StatusCode::UNAUTHENTICATED, method);
    ExpectRefused(Call(channel_, method, "alice"), StatusCode::PERMISSION_DENIED, method);
    ExpectRefused(Call(channel_, method, "front"), StatusCode::PERMISSION_DENIED, method);
  }
  EXPECT_TRUE(Call(channel_, "/tidepool.v1.Inference/ListModels", "alice").ok());
  EXPECT_TRUE(Call(channel_, "/tidepool.v1.Inference/ListModels", "ops").ok());
  EXPECT_TRUE(Call(channel_, "/tidepool.v1.Admin/GetStats", "ops").ok());
}

TEST_F(TokensTest, EveryRpcOfAWorkerAsksForAFront) {
  const TestEngine engine;
  const auto worker = StartWorkerServer(&engine.worker, engine.engine.get(),
                                        {.listen = "127.0.0.1:0", .authenticator = &doorkeeper_});
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto channel =
      grpc::CreateChannel((*worker)->address(), grpc::InsecureChannelCredentials());
  for (const std::string& method : MethodsOf(worker::v1::RunRequest::descriptor()->file())) {
    ExpectRefused(Call(channel, method, ""), StatusCode::UNAUTHENTICATED, method);
    ExpectRefused(Call(channel, method, "alice"), StatusCode::PERMISSION_DENIED, method);
    ExpectRefused(Call(channel, method, "ops"), StatusCode::PERMISSION_DENIED, method);
  }
  for (const std::string& method : MethodsOf(v1::GetStatsRequest::descriptor()->file())) {
    ExpectRefused(Call(channel, method, ""), StatusCode::UNAUTHENTICATED, method);
    ExpectRefused(Call(channel, method, "alice"), StatusCode::PERMISSION_DENIED, method);
  }
  EXPECT_TRUE(Call(channel, "/tidepool.worker.v1.Worker/Tokenize", "front").ok());
  EXPECT_TRUE(Call(channel, "/tidepool.v1.Admin/GetStats", "front").ok());
  EXPECT_TRUE(Call(channel, "/tidepool.v1.Admin/GetStats", "ops").ok());
}

TEST_F(TokensTest, ARefusalNamesTheMissingRight) {
  Start();
  const std::string method = "/tidepool.v1.Admin/GetStats";
  EXPECT_EQ(Call(channel_, method, "").error_message(),
            "a token is missing: send the header authorization: Bearer TOKEN");
  EXPECT_EQ(Call(channel_, method, "alice").error_message(),
            "'alice' has the role user; this call needs the role admin");
  EXPECT_EQ(doorkeeper_.refused, 2);
}

TEST_F(TokensTest, HealthAndReflectionAreOpen) {
  Start();
  const auto health = grpc::health::v1::Health::NewStub(channel_);
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(health->Check(As("").get(), {}, &response).ok());
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  EXPECT_EQ(HttpStatus("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"), 200);
  EXPECT_EQ(HttpStatus("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"), 200);
  // Browsers send a preflight before they send a token.
  EXPECT_EQ(HttpStatus("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: "
                       "https://app.example\r\nAccess-Control-Request-Method: POST\r\n\r\n"),
            204);
}

TEST_F(TokensTest, ASessionIsItsPrincipalsAlone) {
  Start();
  v1::CreateSessionRequest create;
  create.set_session_id("notes");
  v1::Session session;
  ASSERT_TRUE(sessions_->CreateSession(As("alice").get(), create, &session).ok());

  const auto code_for = [&](const std::string& principal) {
    v1::GetSessionRequest get;
    get.set_session_id("notes");
    return sessions_->GetSession(As(principal).get(), get, &session).error_code();
  };
  EXPECT_EQ(code_for("alice"), StatusCode::OK);
  EXPECT_EQ(code_for("bob"), StatusCode::NOT_FOUND);
  // An admin cannot see the sessions of other principals either.
  EXPECT_EQ(code_for("ops"), StatusCode::NOT_FOUND);
  v1::ListSessionsResponse list;
  ASSERT_TRUE(sessions_->ListSessions(As("bob").get(), {}, &list).ok());
  EXPECT_EQ(list.sessions_size(), 0);

  v1::GenerateRequest turn = Text("Hello", 2);
  turn.set_session_id("notes");
  v1::CompleteResponse response;
  EXPECT_EQ(inference_->Complete(As("bob").get(), turn, &response).error_code(),
            StatusCode::NOT_FOUND);
  EXPECT_TRUE(inference_->Complete(As("alice").get(), turn, &response).ok());
  v1::DeleteSessionRequest remove;
  remove.set_session_id("notes");
  v1::DeleteSessionResponse removed;
  EXPECT_EQ(sessions_->DeleteSession(As("bob").get(), remove, &removed).error_code(),
            StatusCode::NOT_FOUND);
  EXPECT_EQ(code_for("alice"), StatusCode::OK);
}

TEST_F(TokensTest, ARequestIdIsItsPrincipalsAlone) {
  Start();
  v1::GenerateRequest request = Text("Hello", 2);
  request.set_request_id("first");
  v1::CompleteResponse response;
  ASSERT_TRUE(inference_->Complete(As("alice").get(), request, &response).ok());
  request.set_text("Something else");
  EXPECT_EQ(inference_->Complete(As("alice").get(), request, &response).error_code(),
            StatusCode::ALREADY_EXISTS);
  EXPECT_TRUE(inference_->Complete(As("bob").get(), request, &response).ok());
}

TEST_F(TokensTest, CachedPrefixesAreTheirPrincipalsAlone) {
  Start();
  const v1::GenerateRequest request = Text(std::string(600, 'a'), 2);
  const auto cached_for = [&](const std::string& principal) {
    v1::CompleteResponse response;
    EXPECT_TRUE(inference_->Complete(As(principal).get(), request, &response).ok());
    return response.usage().cached_tokens();
  };
  EXPECT_EQ(cached_for("alice"), 0);
  EXPECT_GT(cached_for("alice"), 0);
  // Otherwise the response time would show what others have requested.
  EXPECT_EQ(cached_for("bob"), 0);
}

TEST_F(TokensTest, LimitsAreOfThePrincipal) {
  Start();
  const auto first_context = As("carol");
  const auto first = inference_->Generate(first_context.get(), LongText());
  v1::GenerateResponse message;
  ASSERT_TRUE(first->Read(&message));

  v1::CompleteResponse response;
  const grpc::Status second = inference_->Complete(As("carol").get(), Text("Hello", 2), &response);
  ExpectRefused(second, StatusCode::RESOURCE_EXHAUSTED, second.error_message());
  const std::string body = R"({"prompt": "Hello", "max_tokens": 2})";
  EXPECT_EQ(
      HttpStatus(absl::StrCat(
          "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer carol\r\n"
          "Content-Type: application/json\r\nContent-Length: ",
          body.size(), "\r\n\r\n", body)),
      429);
  EXPECT_TRUE(inference_->Complete(As("alice").get(), Text("Hello", 2), &response).ok());

  first_context->TryCancel();
  while (first->Read(&message)) {
  }
  first->Finish();
  WaitIdle();
  EXPECT_TRUE(inference_->Complete(As("carol").get(), Text("Hello", 2), &response).ok());
}

TEST_F(TokensTest, HttpAsksForAToken) {
  Start();
  const auto get = [&](const std::string& path, const std::string& headers) {
    return HttpStatus(
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n", headers, "\r\n"));
  };
  const auto complete = [&](const std::string& headers) {
    const std::string body = R"({"prompt": "Hello", "max_tokens": 2})";
    return HttpStatus(absl::StrCat(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n", headers,
        "Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  };
  for (const std::string path : {"/v1/models", "/v1/models/scripted", "/metrics"}) {
    EXPECT_EQ(get(path, ""), 401) << path;
    EXPECT_EQ(get(path, "Authorization: Bearer mallory\r\n"), 401) << path;
    EXPECT_EQ(get(path, "Authorization: Bearer front\r\n"), 403) << path;
    EXPECT_EQ(get(path, "Authorization: Bearer alice\r\n"), 200) << path;
  }
  EXPECT_EQ(complete(""), 401);
  EXPECT_EQ(complete("Authorization: Basic alice\r\n"), 401);
  EXPECT_EQ(complete("Authorization: Bearer front\r\n"), 403);
  EXPECT_EQ(complete("Authorization: Bearer alice\r\n"), 200);
  EXPECT_EQ(complete("authorization: bearer ops\r\n"), 200);
  EXPECT_EQ(complete("Authorization: Bearer alice\r\nAuthorization: Bearer alice\r\n"), 400);
  EXPECT_EQ(complete("X-Api-Key: alice\r\n"), 200);
  EXPECT_EQ(complete("X-Api-Key: mallory\r\n"), 401);
  EXPECT_EQ(complete("X-Api-Key: front\r\n"), 403);
  EXPECT_EQ(complete("X-Api-Key: alice\r\nAuthorization: Bearer alice\r\n"), 200);
  EXPECT_EQ(complete("X-Api-Key: alice\r\nAuthorization: Bearer ops\r\n"), 401);
  EXPECT_EQ(complete("X-Api-Key: alice\r\nX-Api-Key: alice\r\n"), 400);
  // A page can only send a token that its user gave to it.
  EXPECT_EQ(complete("Authorization: Bearer alice\r\nOrigin: https://app.example\r\n"), 200);
}

TEST_F(TokensTest, AFrontShowsItsWorkersAToken) {
  StartApart();
  const grpc::Status status = CompleteAs("alice");
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// A stream that ends by itself continues. A stream that would never end must end when its token is
// revoked.
TEST_F(TokensTest, ARevokedTokenEndsAWatchOfStats) {
  StartApart();
  v1::WatchStatsRequest request;
  request.set_interval_seconds(0.1);
  for (const std::string& address : {server_->address(), worker_->address()}) {
    doorkeeper_.Revoke("");
    const auto admin =
        v1::Admin::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    const auto context = As("ops");
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const auto reader = admin->WatchStats(context.get(), request);
    v1::GetStatsResponse stats;
    ASSERT_TRUE(reader->Read(&stats));
    doorkeeper_.Revoke("ops");
    while (reader->Read(&stats)) {
    }
    ExpectRefused(reader->Finish(), StatusCode::UNAUTHENTICATED, address);
  }
}

TEST_F(TokensTest, ARunningStreamContinuesAfterItsTokenIsRevoked) {
  Start();
  const auto context = As("alice");
  const auto reader = inference_->Generate(context.get(), LongText());
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  doorkeeper_.Revoke("alice");
  ExpectRefused(CompleteAs("alice"), StatusCode::UNAUTHENTICATED, "another call");
  while (reader->Read(&message)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(message.usage().completion_tokens(), 2000);
}

// A worker refuses a front whose token was revoked. Clients of the front must not get an error
// about their own tokens. Their requests wait for a worker.
TEST_F(TokensTest, AWorkerThatRevokesItsFrontIsUnavailableToClients) {
  StartApart();
  ASSERT_TRUE(CompleteAs("alice").ok());
  const auto channel = grpc::CreateChannel(worker_->address(), grpc::InsecureChannelCredentials());
  const auto stub = worker::v1::Worker::NewStub(channel);
  const auto context = As("front");
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto watch = stub->Watch(context.get(), {});
  worker::v1::WatchResponse state;
  ASSERT_TRUE(watch->Read(&state));

  doorkeeper_.Revoke("front");
  v1::TokenizeRequest request;
  request.set_text("Hello");
  v1::TokenizeResponse tokens;
  // This must be so at once, while the front still considers the worker healthy.
  ExpectRefused(inference_->Tokenize(As("alice").get(), request, &tokens), StatusCode::UNAVAILABLE,
                "the worker refuses");
  while (watch->Read(&state)) {
  }
  ExpectRefused(watch->Finish(), StatusCode::UNAUTHENTICATED, "the stream of states");

  doorkeeper_.Revoke("");
  const grpc::Status again = CompleteAs("alice");
  EXPECT_TRUE(again.ok()) << again.error_message();
}

// Without files, there are no credentials and no thread that watches files.
TEST(ClientSecurityTest, WithoutFilesThereIsNone) {
  const auto security = ClientSecurity::Open({});
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_EQ(*security, nullptr);
}

}  // namespace
}  // namespace tidepool::service
