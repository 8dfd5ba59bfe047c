#include "service/grpc/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "kernels/base/retry_after.h"

namespace tidepool::service {
namespace {

// gRPC rejects headers of more than 8 KiB in total, and a byte of the message may need three bytes
// in a header.
constexpr size_t kMaxMessageBytes = 1024;

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message());
  if (message.size() > kMaxMessageBytes) {
    size_t end = kMaxMessageBytes;
    while (end > 0 && (static_cast<uint8_t>(message[end]) & 0xc0) == 0x80) --end;
    message.resize(end);
  }
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::optional<absl::Duration> retry_after = base::RetryAfterOf(status);
  if (!retry_after.has_value()) return grpc::Status(code, message);
  google::rpc::RetryInfo retry;
  const int64_t milliseconds = absl::ToInt64Milliseconds(*retry_after);
  retry.mutable_retry_delay()->set_seconds(milliseconds / 1000);
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(milliseconds % 1000 * 1'000'000));
  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  details.add_details()->PackFrom(retry);
  return grpc::Status(code, message, details.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  absl::Status converted(static_cast<absl::StatusCode>(status.error_code()),
                         status.error_message());
  google::rpc::Status details;
  if (status.ok() || !details.ParseFromString(status.error_details())) return converted;
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::RetryInfo retry;
    if (!detail.UnpackTo(&retry)) continue;
    const absl::Duration wait = absl::Seconds(retry.retry_delay().seconds()) +
                                absl::Nanoseconds(retry.retry_delay().nanos());
    converted = base::WithRetryAfter(std::move(converted), wait);
  }
  return converted;
}

}  // namespace tidepool::service
