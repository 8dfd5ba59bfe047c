// Client: the public gRPC API as the CLI commands use it, with a remote server or one in this
// process. In service/cli, only Client and TrafficClient use the messages and stubs.
#ifndef TIDEPOOL_SERVICE_CLI_CLIENT_H_
#define TIDEPOOL_SERVICE_CLI_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/cli/config.h"
#include "service/cli/console.h"

namespace grpc {
class Channel;
}

namespace tidepool::service {

// The error message for a server without the Inference service.
inline constexpr absl::string_view kNoClientServices =
    "this server is a worker, which serves only fronts; use the address of a front";

struct ChatLine {
  std::string role;
  std::string content;
};

struct Question {
  // Requires: exactly one of text, token_ids and messages is set. `text` may be empty; the server
  // refuses an empty text.
  std::optional<std::string> text;
  std::vector<int32_t> token_ids;
  std::vector<ChatLine> messages;
  std::string session;  // empty: none
  GenerationFlags generation;
};

struct ClientResponse {
  std::string text;
  std::vector<int32_t> token_ids;
  std::string finish_reason;  // the enumerator's name, such as "STOP"
  Json usage;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  // Measured by the client.
  int64_t messages = 0;
  absl::Duration first_message;
  absl::Duration total;
};

struct ResponseHooks {
  // Called with each piece of text when it arrives.
  std::function<void(absl::string_view)> on_text;
  // Called once before the request is sent. The argument is a function that cancels the call. It
  // may be called from any thread and at any time.
  std::function<void(std::function<void()>)> on_start;
};

struct AskResult {
  ClientResponse response;  // the part of the response that arrived; complete if status is OK
  absl::Status status;
};

// Thread-safe.
class Client {
 public:
  // Connects to config.client.server with the TLS settings and token of config.security. The
  // connection is opened by the first call, which returns UNAVAILABLE if the server does not
  // respond. Connect itself fails only if a file cannot be read.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const Config& config);
  // `name` is the server's name in errors.
  static std::unique_ptr<Client> Over(std::shared_ptr<grpc::Channel> channel, std::string name);

  virtual ~Client() = default;

  // Blocks until the response has ended.
  virtual AskResult Ask(const Question& question, const ResponseHooks& hooks) = 0;
  // Creates the session if it does not exist. Returns its number of turns.
  virtual absl::StatusOr<int64_t> OpenSession(const std::string& session) = 0;
  // Calls Admin.GetStats and returns it with the proto's field names. All calls below return
  // DEADLINE_EXCEEDED after `timeout`.
  virtual absl::StatusOr<Json> Stats(absl::Duration timeout) = 0;
  // Calls Admin.RefreshExperts if `flags` ask for a refresh, else Admin.SetOffload.
  virtual absl::StatusOr<Json> Offload(const OffloadFlags& flags, absl::Duration timeout) = 0;
  // Calls Admin.GetPlacement.
  virtual absl::StatusOr<Json> Placement(absl::Duration timeout) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CLIENT_H_
