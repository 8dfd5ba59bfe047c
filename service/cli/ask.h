// What generate and chat share: a server to ask, elsewhere or in this process.
#ifndef TIDEPOOL_SERVICE_CLI_ASK_H_
#define TIDEPOOL_SERVICE_CLI_ASK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "service/cli/client.h"
#include "service/cli/config.h"
#include "service/cli/console.h"
#include "service/cli/local_server.h"

namespace tidepool::service {

// Thread-compatible. The model, where it runs in this process, lives as long.
struct Connection {
  std::unique_ptr<LocalServer> local;  // null with --server
  std::unique_ptr<Client> client;
};

// With --server a client of it; else front and worker in this process, over an in-process channel,
// with sessions that end with it. A server that does not answer, or serves no clients, is an error
// here already; one whose workers do not answer is noted on stderr, since it makes its clients
// wait.
absl::StatusOr<Connection> OpenConnection(const Config& config, Console* console);

// "24 tokens, 31.0 tokens/s; first after 0.05 s, all in 0.82 s, 25 messages; prompt 9 tokens, 0
// cached", and what cut the answer short of the tokens that `wanted` asks for.
std::string Summary(const Answer& answer, const GenerationFlags& wanted);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_ASK_H_
