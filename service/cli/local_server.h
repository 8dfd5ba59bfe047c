// LocalServer: a model in this process with everything that serving it needs, for serve, worker,
// and for commands that ask without a port.
#ifndef TIDEPOOL_SERVICE_CLI_LOCAL_SERVER_H_
#define TIDEPOOL_SERVICE_CLI_LOCAL_SERVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "moe/offload_control.h"
#include "service/cli/config.h"
#include "service/cli/console.h"
#include "service/cli/log.h"
#include "service/server.h"
#include "service/worker/worker_model.h"

namespace tidepool::service {

// Which half, and whether on a port.
enum class LocalRole : uint8_t {
  kServe,    // front and worker on config.listen.grpc
  kWorker,   // worker on config.listen.grpc
  kPrivate,  // front and worker, no port, sessions in memory
};

// What servers use of their process; all of it may be null, and outlives them.
struct Surroundings {
  Log* log = nullptr;
  const WatchedFiles<TlsIdentity>* tls = nullptr;
  const Authenticator* authenticator = nullptr;
  std::function<void()> drain;  // begins the end of the process; any thread
};

// Thread-safe. Destruction ends at once, in the right order: server, engine, model.
class LocalServer {
 public:
  virtual ~LocalServer() = default;
  virtual Server& server() = 0;
  virtual const WorkerModel& model() const = 0;
  // As at the start; none: all of the model is in memory.
  virtual const std::optional<moe::OffloadSettings>& offload() const = 0;
};

// Loads the model, with progress on `console`'s stderr where that is a terminal, and starts
// serving. `console` outlives the result.
absl::StatusOr<std::unique_ptr<LocalServer>> StartLocalServer(const Config& config, LocalRole role,
                                                              const Surroundings& surroundings,
                                                              Console* console);

// What of a configuration servers take while they run.
LiveOptions LiveOptionsOf(const Config& config);

// A front without a model, on config.listen.grpc.
absl::StatusOr<std::unique_ptr<Server>> StartFront(const Config& config,
                                                   const Surroundings& surroundings);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_LOCAL_SERVER_H_
