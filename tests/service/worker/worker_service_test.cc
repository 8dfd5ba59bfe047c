// In which queue of the pools a worker's calls wait, and how long a call counts as running.
#include "service/worker/worker_service.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "service/grpc/status.h"
#include "tests/fakes/byte_tokenizer.h"
#include "tests/service/test_server.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::service {
namespace {

class WorkerServiceTest : public testing::Test {
 protected:
  ~WorkerServiceTest() override { Open(); }

  // Keeps all threads of the pool busy until Open is called. Each task has its own queue.
  void Block(TaskPool* pool) {
    constexpr int kMoreThanThreads = 16;
    for (int i = 0; i < kMoreThanThreads; ++i) {
      pool->Post(absl::StrCat("the test's line ", i), [open = open_] { open.wait(); });
    }
  }
  void Open() {
    if (!std::exchange(opened_, true)) gate_.set_value();
  }

  TestEngine engine_;
  bool opened_ = false;
  std::promise<void> gate_;
  const std::shared_future<void> open_ = gate_.get_future().share();
  std::optional<WorkerCore> core_{
      std::in_place, &engine_.worker,        engine_.engine.get(),
      "w",           WorkerAdmin::Process(), [](LogLevel, absl::string_view, LogFields) {}};
  WorkerService service_{&*core_, Gate()};
};

// gRPC's side of a unary call, without a connection. It records the end of the call. The call is
// complete when the test calls Sent.
class FakeCall final : public grpc::ServerCallbackUnary {
 public:
  explicit FakeCall(std::function<void(const grpc::Status&)> on_end) : on_end_(std::move(on_end)) {}

  void Take(grpc::ServerUnaryReactor* reactor) {
    reactor_ = reactor;
    BindReactor(reactor);
    LetGo();
  }
  // The kernel has the response.
  void Sent() { LetGo(); }

  void Finish(grpc::Status status) override { on_end_(status); }
  void SendInitialMetadata() override {}

 private:
  void LetGo() {
    if (--holders_ == 0) reactor_->OnDone();
  }
  grpc::internal::ServerReactor* reactor() override { return reactor_; }
  void CallOnDone() override {}

  const std::function<void(const grpc::Status&)> on_end_;
  grpc::ServerUnaryReactor* reactor_ = nullptr;
  std::atomic<int> holders_{2};  // one for Take, and one for the bytes that must be sent
};

// A Prepare call without a connection. It records its end.
struct Preparing {
  Preparing(const std::string& principal, std::function<void(const std::string&)> on_end)
      : call([principal, on_end](const grpc::Status& status) {
          EXPECT_TRUE(status.ok()) << status.error_message();
          on_end(principal);
        }) {
    request.mutable_request()->set_text("The tide");
    request.mutable_request()->mutable_stopping()->set_max_tokens(1);
    request.mutable_caller()->set_principal(principal);
  }
  void Begin(WorkerService* service) { call.Take(service->Prepare(&context, &request, &response)); }

  grpc::CallbackServerContext context;
  FakeCall call;
  worker::v1::PrepareRequest request;
  worker::v1::PrepareResponse response;
};

// Prepares a request with a regular expression, or without one if it is empty. Waits for the end.
void PrepareOne(const std::string& regex, WorkerService* service) {
  std::promise<void> finished;
  Preparing prompt("alice", [&](const std::string&) { finished.set_value(); });
  if (!regex.empty()) prompt.request.mutable_request()->set_regex(regex);
  prompt.Begin(service);
  finished.get_future().wait();
  prompt.call.Sent();
}

TEST_F(WorkerServiceTest, ThePromptsOfAPrincipalWaitInItsOwnLine) {
  Block(core_->pool());
  base::Mutex mutex;
  std::vector<std::string> order;
  std::vector<std::unique_ptr<Preparing>> prompts;
  const auto prepare = [&](const std::string& principal) {
    const size_t number = prompts.size();
    prompts.push_back(std::make_unique<Preparing>(principal, [&, number](const std::string& whose) {
      prompts[number]->call.Sent();
      base::MutexLock lock(&mutex);
      order.push_back(whose);
    }));
    prompts.back()->Begin(&service_);
  };
  for (int i = 0; i < 200; ++i) prepare("greedy");
  prepare("other");
  Open();
  core_.reset();  // runs all posted tasks
  ASSERT_EQ(order.size(), 201);
  // The queues take turns, so the task of the other queue runs early. Its exact place varies,
  // because threads do not finish tasks in the order in which they started them.
  EXPECT_LT(std::find(order.begin(), order.end(), "other") - order.begin(), 100);
  for (const auto& prompt : prompts) EXPECT_GT(prompt->response.token_ids_size(), 0);
}

// If a shutdown considered the call ended, it would close the connection too early.
TEST_F(WorkerServiceTest, ACallRunsUntilItsResponseIsSent) {
  std::promise<void> finished;
  Preparing prompt("alice", [&](const std::string&) { finished.set_value(); });
  prompt.Begin(&service_);
  finished.get_future().wait();
  EXPECT_FALSE(core_->unary_calls()->AwaitNone(absl::ZeroDuration()));
  prompt.call.Sent();
  EXPECT_TRUE(core_->unary_calls()->AwaitNone(absl::ZeroDuration()));
}

TEST_F(WorkerServiceTest, PromptsDoNotWaitForGrammars) {
  Block(core_->PoolFor(OutputWork::kLong));
  PrepareOne("", &service_);
}

TEST_F(WorkerServiceTest, GrammarsDoNotWaitForPrompts) {
  Block(core_->pool());
  PrepareOne("a+", &service_);
  EXPECT_EQ(engine_.worker.grammars->compiled_total(), 1);
}

TEST_F(WorkerServiceTest, AGrammarThatIsKnownDoesNotWaitForOtherGrammars) {
  PrepareOne("a+", &service_);
  Block(core_->PoolFor(OutputWork::kLong));
  PrepareOne("a+", &service_);
  EXPECT_EQ(engine_.worker.grammars->compiled_total(), 1);
}

TEST_F(WorkerServiceTest, CallsOfAFrontDoNotWaitForTextsOfClients) {
  grpc::ServerBuilder builder;
  builder.RegisterService(&service_);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = worker::v1::Worker::NewStub(server->InProcessChannel({}));
  v1::DetokenizeRequest request;
  for (const int32_t id : fakes::ByteTokens("The tide")) request.add_token_ids(id);
  const auto deadline = std::chrono::system_clock::now() + std::chrono::minutes(1);

  Block(core_->text_pool());
  grpc::ClientContext clients, fronts;
  v1::DetokenizeResponse clients_text, fronts_text;
  clients.set_deadline(deadline);
  std::promise<grpc::Status> clients_end;
  stub->async()->Detokenize(&clients, &request, &clients_text,
                            [&](const grpc::Status& status) { clients_end.set_value(status); });
  fronts.set_deadline(deadline);
  fronts.AddMetadata(kForRequestOf, "alice");
  const grpc::Status answered = stub->Detokenize(&fronts, request, &fronts_text);
  EXPECT_TRUE(answered.ok()) << answered.error_message();
  EXPECT_EQ(fronts_text.text(), "The tide");
  Open();
  EXPECT_TRUE(clients_end.get_future().get().ok());
  EXPECT_EQ(clients_text.text(), "The tide");
  server->Shutdown();
}

TEST_F(WorkerServiceTest, TextsOfClientsKeepNoPromptWaiting) {
  Block(core_->text_pool());
  std::promise<void> prepared;
  Preparing prompt("alice", [&](const std::string&) { prepared.set_value(); });
  prompt.Begin(&service_);
  EXPECT_EQ(prepared.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  prompt.call.Sent();
  Open();
}

}  // namespace
}  // namespace tidepool::service
