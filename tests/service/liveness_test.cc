// Engines that hang, and how health probes report it.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/base/mutex.h"
#include "tests/service/http/raw_client.h"
#include "tests/service/serve_fixture.h"

namespace tidepool::service {
namespace {

constexpr char kStandsStill[] =
    "the engine is stuck: work is pending, but there was no progress for 200ms";

bool IsLive(const std::string& address) {
  const auto stub = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("liveness");
  grpc::health::v1::HealthCheckResponse response;
  grpc::ClientContext context;
  const grpc::Status status = stub->Check(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
}

void WaitUntilLive(const std::string& address, bool live) {
  while (IsLive(address) != live) std::this_thread::yield();
}

class LivenessTest : public ServeTest {
 protected:
  LivenessTest() {
    stall_timeout_ = absl::Milliseconds(200);
    log_ = [this](LogLevel level, absl::string_view line) {
      if (level < LogLevel::kWarn) return;
      base::MutexLock lock(&mutex_);
      lines_.emplace_back(line);
    };
  }

  ~LivenessTest() override { server_.reset(); }  // the server uses this object's log until it ends

  RawResponse Healthz() {
    const std::string address = server_->http_address();
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    return RawClient(port).Get("/healthz");
  }

  std::vector<std::string> Lines() {
    base::MutexLock lock(&mutex_);
    return lines_;
  }

 private:
  base::Mutex mutex_;
  std::vector<std::string> lines_ TIDEPOOL_GUARDED_BY(mutex_);
};

TEST_F(LivenessTest, AStuckStepIsReported) {
  Start();
  EXPECT_TRUE(IsLive(server_->address()));
  engine_->model.Hold();
  grpc::ClientContext context;
  auto reader = inference_->Generate(&context, Text("Hello", 5));
  WaitUntilLive(server_->address(), false);
  const RawResponse stuck = Healthz();
  EXPECT_EQ(stuck.status, 503);
  EXPECT_EQ(stuck.body, std::string(kStandsStill) + "\n");
  // The stall is logged only once, even if it lasts long.
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_FALSE(IsLive(server_->address()));
  EXPECT_EQ(Lines(), std::vector<std::string>{kStandsStill});

  engine_->model.Release();
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  WaitUntilLive(server_->address(), true);
  EXPECT_EQ(Healthz().status, 200);
  // The end of the slow step is also logged once. On a busy machine, a later step may be slow, too,
  // and is then logged in the same way.
  const std::vector<std::string> lines = Lines();
  EXPECT_GE(lines.size(), 2);
  EXPECT_EQ(lines.size() % 2, 0);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i], i % 2 == 0 ? kStandsStill : "the engine makes progress again") << i;
  }
}

TEST_F(LivenessTest, AWorkersProbePortReportsIt) {
  TestEngine engine;
  const auto worker = StartWorkerServer(
      &engine.worker, engine.engine.get(),
      {.listen = "127.0.0.1:0", .probe_listen = "127.0.0.1:0", .stall_timeout = stall_timeout_});
  ASSERT_TRUE(worker.ok()) << worker.status();
  engine.model.Hold();
  engine::GenerationRequest request = {.token_ids = {1, 2, 3}, .prompt_length = 3};
  request.stopping.max_tokens = 5;
  const auto stream = engine.engine->Submit(request);
  ASSERT_TRUE(stream.ok()) << stream.status();
  for (const std::string& port : {(*worker)->address(), (*worker)->probe_address()}) {
    WaitUntilLive(port, false);
  }
  engine.model.Release();
  WaitUntilLive((*worker)->probe_address(), true);
}

}  // namespace
}  // namespace tidepool::service
