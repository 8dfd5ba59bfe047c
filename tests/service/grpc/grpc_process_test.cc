#include "service/grpc/grpc_process.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "tidepool/v1/inference.grpc.pb.h"

namespace tidepool::service {
namespace {

// A call whose callback releases the last channel of the process. The context also holds this
// channel.
struct LastCall {
  std::unique_ptr<v1::Inference::Stub> stub;
  grpc::ClientContext context;
  v1::ListModelsRequest request;
  v1::ListModelsResponse response;
};

// Without KeepCallbackQueue, this test aborts, hangs or reads freed memory within a few rounds.
TEST(GrpcProcess, TheLastChannelMayGoInACallback) {
  KeepCallbackQueue();
  for (int round = 0; round < 20; ++round) {
    auto* call = new LastCall;
    call->stub = v1::Inference::NewStub(
        grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials()));
    grpc::StatusCode code = grpc::StatusCode::OK;
    absl::Notification done;
    call->stub->async()->ListModels(&call->context, &call->request, &call->response,
                                    [call, &code, &done](grpc::Status status) {
                                      code = status.error_code();
                                      delete call;
                                      done.Notify();
                                    });
    ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(120))) << "round " << round;
    EXPECT_EQ(code, grpc::StatusCode::UNAVAILABLE);
  }
}

}  // namespace
}  // namespace tidepool::service
