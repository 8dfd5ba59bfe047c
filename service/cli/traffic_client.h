// TrafficClient: many Generate calls at the same time, each without a thread.
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

struct TrafficAnswer {
  std::vector<TokenArrival> arrivals;  // on the monotonic clock
  absl::Status status;                 // with the server's hint when to retry, if it gave one
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
};

// What a prompt for the server has to fit.
struct ServedModel {
  std::string name;
  int32_t vocab_size = 0;
  int64_t context_length = 0;
};

// Thread-safe.
class TrafficClient {
 public:
  // To config.client.server over config.traffic.connections connections, as config.security says.
  // Connects when first used. Errors are of files that cannot be read.
  static absl::StatusOr<std::unique_ptr<TrafficClient>> Connect(const Config& config);

  // Returns when no call runs.
  virtual ~TrafficClient() = default;

  // The server's only model. Blocks. UNAVAILABLE: nobody answers; UNIMPLEMENTED: the server does
  // not tell what is asked here; others as of GetModel.
  virtual absl::StatusOr<ServedModel> FindModel() = 0;
  // Greedy, past the model's end tokens. `done` is called once, on a thread of gRPC's.
  virtual void Send(const TrafficRequest& request, std::function<void(TrafficAnswer)> done) = 0;
  // Calls that run end as CANCELLED.
  virtual void CancelAll() = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_TRAFFIC_CLIENT_H_
