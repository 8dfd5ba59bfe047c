// Shared by generate and chat: opens a connection to a remote server, or to a server in this
// process.
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

// Thread-compatible. Owns the model if the server runs in this process.
struct Connection {
  std::unique_ptr<LocalServer> local;  // null with --server
  std::unique_ptr<Client> client;
};

// With --server, connects to that server. Otherwise starts a front and a worker in this process,
// with in-memory sessions and an in-process channel. Returns an error if the server does not
// respond or has no Inference service. Prints a note on stderr if the server's workers do not
// respond, because requests then wait.
absl::StatusOr<Connection> OpenConnection(const Config& config, Console* console);

// For example "24 tokens, 31.0 tokens/s; first after 0.05 s, all in 0.82 s, 25 messages; prompt 9
// tokens, 0 cached". If the response has fewer tokens than the max_tokens of `wanted`, the summary
// gives the reason.
std::string Summary(const ClientResponse& response, const GenerationFlags& wanted);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_ASK_H_
