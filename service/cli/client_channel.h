// Shared by the gRPC clients of the CLI: channels to config.client.server, and readable errors.
#ifndef TIDEPOOL_SERVICE_CLI_CLIENT_CHANNEL_H_
#define TIDEPOOL_SERVICE_CLI_CLIENT_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/cli/config.h"

namespace tidepool::service {

// Opens `count` channels to config.client.server with the TLS settings and token of
// config.security. Each channel has its own connection, which is opened by the first call. Fails
// only if a file cannot be read. Requires: count >= 1.
absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> OpenClientChannels(const Config& config,
                                                                               int64_t count);

// Converts `status`. The message begins with `name`, the name of the server, if it is not empty.
// gRPC's own messages are replaced by readable ones.
absl::Status ToClientStatus(const grpc::Status& status, const std::string& name);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CLIENT_CHANNEL_H_
