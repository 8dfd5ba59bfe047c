// TrafficClient: runs many Generate calls at the same time, without a thread for each.
#ifndef TIDEPOOL_SERVICE_CLI_TRAFFIC_CLIENT_H_
#define TIDEPOOL_SERVICE_CLI_TRAFFIC_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/cli/config.h"
#include "service/cli/traffic_plan.h"
#include "service/cli/traffic_report.h"

namespace tidepool::service {

struct TrafficResponse {
  std::vector<TokenArrival> arrivals;  // times are of the monotonic clock
  absl::Status status;                 // with the server's retry delay, if it sent one
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
};

// The model's limits for prompts.
struct ServedModel {
  std::string name;
  int32_t vocab_size = 0;
  int64_t context_length = 0;
};

// Thread-safe.
class TrafficClient {
 public:
  // Opens config.traffic.connections connections to config.client.server with the settings of
  // config.security. Each connection is opened by its first call. Fails only if a file cannot be
  // read.
  static absl::StatusOr<std::unique_ptr<TrafficClient>> Connect(const Config& config);

  // Blocks until all calls have ended.
  virtual ~TrafficClient() = default;

  // Returns the only model of the server. Blocks. UNAVAILABLE if the server does not respond,
  // UNIMPLEMENTED if its response lacks a field of ServedModel. Other errors are those of GetModel.
  virtual absl::StatusOr<ServedModel> FindModel() = 0;
  // Sends a request with greedy sampling that ignores end tokens. `done` is called once, on a gRPC
  // thread.
  virtual void Send(const TrafficRequest& request, std::function<void(TrafficResponse)> done) = 0;
  // Cancels all running calls, which end with CANCELLED.
  virtual void CancelAll() = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_TRAFFIC_CLIENT_H_
