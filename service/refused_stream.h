// RefusedStream: a server's stream that ends at once.
#ifndef TIDEPOOL_SERVICE_REFUSED_STREAM_H_
#define TIDEPOOL_SERVICE_REFUSED_STREAM_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "service/convert.h"

namespace tidepool::service {

// Deletes itself. Requires: !status.ok().
template <typename Message>
class RefusedStream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_REFUSED_STREAM_H_
