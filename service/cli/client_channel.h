// What every gRPC client of the terminal's commands shares: the way to config.client.server, and
// how its errors are told to people.
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

// So many channels to config.client.server, each with a connection of its own once it is used, with
// what config.security has for it. Errors are of files that cannot be read. Requires: count >= 1.
absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> OpenClientChannels(const Config& config,
                                                                               int64_t count);

// `status` with the server's name in front, and what gRPC says of its own accord put plainly.
// `name` is how errors call the server; empty: not at all.
absl::Status ToClientStatus(const grpc::Status& status, const std::string& name);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CLIENT_CHANNEL_H_
