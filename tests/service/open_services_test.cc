// Health and reflection need no token. So a client that is not authenticated may use only few
// resources of a server.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/service/serve_fixture.h"

namespace tidepool::service {
namespace {

using grpc::StatusCode;

// A stream of the reflection service. The client has no token.
class ReflectionStream {
 public:
  explicit ReflectionStream(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
    call_ = stub_.PrepareCall(
        &context_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue_);
    call_->StartCall(this);
    Wait();
  }
  ~ReflectionStream() {
    context_.TryCancel();
    if (!finished_) Finish();
    queue_.Shutdown();
  }

  // Sends a question. Returns true if the server responds. The server then uses a thread until the
  // next question.
  bool Ask() {
    call_->Write(grpc::ByteBuffer(&nothing_, 1), this);
    if (!Wait()) return false;
    grpc::ByteBuffer answer;
    call_->Read(&answer, this);
    return Wait();
  }

  grpc::Status Finish() {
    finished_ = true;
    grpc::Status status;
    call_->Finish(&status, this);
    Wait();
    return status;
  }

 private:
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
    return ok;
  }

  const grpc::Slice nothing_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool finished_ = false;
};

bool IsServing(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status =
      grpc::health::v1::Health::NewStub(channel)->Check(&context, {}, &response);
  return status.ok() && response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
}

class OpenServicesTest : public ServeTest {};

TEST_F(OpenServicesTest, StreamsOfReflectionTakeFewThreads) {
  Start();
  std::vector<std::unique_ptr<ReflectionStream>> held;
  int refused = 0;
  for (int i = 0; i < 64; ++i) {
    auto stream = std::make_unique<ReflectionStream>(channel_);
    if (stream->Ask()) {
      held.push_back(std::move(stream));
    } else {
      ++refused;
      EXPECT_EQ(stream->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
    }
  }
  EXPECT_GE(held.size(), 1);
  EXPECT_LE(held.size(), 16);
  EXPECT_GE(refused, 48);
  // All other services still work.
  EXPECT_TRUE(IsServing(channel_));
  EXPECT_TRUE(Generate(Text("Hello", 2)).status.ok());

  held.clear();
  while (!ReflectionStream(channel_).Ask()) {
  }
}

TEST_F(OpenServicesTest, APortForProbesTakesShortMessages) {
  const TestEngine engine;
  const auto worker = StartWorkerServer(&engine.worker, engine.engine.get(),
                                        {.listen = "127.0.0.1:0", .probe_listen = "127.0.0.1:0"});
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto channel =
      grpc::CreateChannel((*worker)->probe_address(), grpc::InsecureChannelCredentials());
  EXPECT_TRUE(IsServing(channel));
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(std::string(1 << 20, 'a'));
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status =
      grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
}

}  // namespace
}  // namespace tidepool::service
