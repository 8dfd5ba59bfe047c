// Client: the public gRPC API as the terminal's commands use it, against a server elsewhere or in
// this process. The only code of service/cli that knows messages and stubs.
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

// What is wrong with a server that has no Inference service.
inline constexpr absl::string_view kNoClientServices =
    "this server does not serve clients; a worker's clients ask its front";

struct ChatLine {
  std::string role;
  std::string content;
};

struct Question {
  // Exactly one of these three is not empty (a text may be: it is then refused by the server).
  std::optional<std::string> text;
  std::vector<int32_t> token_ids;
  std::vector<ChatLine> messages;
  std::string session;  // empty: none
  GenerationFlags generation;
};

struct Answer {
  std::string text;
  std::vector<int32_t> token_ids;
  std::string finish_reason;  // the enumerator's name, such as "STOP"
  Json usage;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  // As seen here.
  int64_t messages = 0;
  absl::Duration first_message;
  absl::Duration total;
};

struct AnswerHooks {
  // Each piece of text as it arrives.
  std::function<void(absl::string_view)> on_text;
  // Once, before anything is sent: a function that cancels the call, from any thread, at any time.
  std::function<void(std::function<void()>)> on_start;
};

struct AskResult {
  Answer answer;  // what has arrived, whole when status is OK
  absl::Status status;
};

// Thread-safe.
class Client {
 public:
  // To config.client.server, with what config.security has for it. Connects when first used; a
  // server that does not answer is UNAVAILABLE. Errors are of files that cannot be read.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const Config& config);
  // `name` is how errors call the server.
  static std::unique_ptr<Client> Over(std::shared_ptr<grpc::Channel> channel, std::string name);

  virtual ~Client() = default;

  // Blocks until the answer has ended.
  virtual AskResult Ask(const Question& question, const AnswerHooks& hooks) = 0;
  // Makes the session if the server does not have it; returns the turns it has had.
  virtual absl::StatusOr<int64_t> OpenSession(const std::string& session) = 0;
  // Admin.GetStats, with the proto's field names. DEADLINE_EXCEEDED after `timeout`; so below.
  virtual absl::StatusOr<Json> Stats(absl::Duration timeout) = 0;
  // Admin.RefreshExperts where `flags` ask for that, else Admin.SetOffload.
  virtual absl::StatusOr<Json> Offload(const OffloadFlags& flags, absl::Duration timeout) = 0;
  // Admin.GetPlacement.
  virtual absl::StatusOr<Json> Placement(absl::Duration timeout) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CLIENT_H_
