// LocalServer: a model in this process, with the engine, worker and front that serve it. serve and
// worker use it with a port, and commands such as generate use it without one.
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

// Which parts run in this process, and whether they listen on a port.
enum class LocalRole : uint8_t {
  kServe,    // front and worker on config.listen.grpc
  kWorker,   // worker on config.listen.grpc
  kPrivate,  // front and worker, no port, sessions in memory
};

// Objects that belong to the process and are used by its servers. Any of them may be null. They
// must outlive the server.
struct Surroundings {
  Log* log = nullptr;
  const WatchedFiles<TlsIdentity>* tls = nullptr;
  const Authenticator* authenticator = nullptr;
  std::function<void()> drain;  // begins the process's shutdown; thread-safe
};

// Thread-safe. The destructor stops everything at once: first the server, then the engine, then the
// model.
class LocalServer {
 public:
  virtual ~LocalServer() = default;
  virtual Server& server() = 0;
  virtual const WorkerModel& model() const = 0;
  // The offload settings after the load. nullopt if the whole model is in memory.
  virtual const std::optional<moe::OffloadSettings>& offload() const = 0;
};

// Loads the model and starts to serve it. Shows progress on `console`'s stderr if that is a
// terminal. `console` outlives the result.
absl::StatusOr<std::unique_ptr<LocalServer>> StartLocalServer(const Config& config, LocalRole role,
                                                              const Surroundings& surroundings,
                                                              Console* console);

// The options of a running server that a reload of the configuration can change.
LiveOptions LiveOptionsOf(const Config& config);

// Starts a front without a model, on config.listen.grpc.
absl::StatusOr<std::unique_ptr<Server>> StartFront(const Config& config,
                                                   const Surroundings& surroundings);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_LOCAL_SERVER_H_
