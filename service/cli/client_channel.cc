#include "service/cli/client_channel.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/auth/client_security.h"
#include "service/cli/client.h"
#include "service/grpc/grpc_process.h"

namespace tidepool::service {
namespace {

// Most responses are small, but GetSession can return a long conversation.
constexpr int kMaxMessageBytes = 256 << 20;

}  // namespace

absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> OpenClientChannels(const Config& config,
                                                                               int64_t count) {
  KeepCallbackQueue();
  ASSIGN_OR_RETURN(std::shared_ptr<ClientSecurity> security,
                   ClientSecurity::Open({.token_file = config.security.token_file,
                                         .tls = {.certificate = config.security.tls_cert,
                                                 .key = config.security.tls_key,
                                                 .ca = config.security.tls_ca}}));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Without this option, channels with the same arguments share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int64_t i = 0; i < count; ++i) {
    channels.push_back(ClientSecurity::OpenChannel(security, config.client.server, arguments));
  }
  return channels;
}

absl::Status ToClientStatus(const grpc::Status& status, const std::string& name) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (status.error_message().find("http1.x server") != std::string::npos) {
    return absl::UnavailableError(absl::StrCat(
        name, ": this port serves HTTP, not gRPC; use the server's gRPC address (its --listen)"));
  }
  // gRPC's message for a refused connection is long and does not name the server.
  if (code == absl::StatusCode::kUnavailable &&
      status.error_message().find("failed to connect") != std::string::npos) {
    const bool refused = status.error_message().find("onnection refused") != std::string::npos;
    return absl::UnavailableError(absl::StrCat(
        "no server answers at ", name,
        refused ? "" : "; check the address; if the server uses TLS, set --tls-ca FILE"));
  }
  std::string message = status.error_message();
  if (message == "Deadline Exceeded") {  // gRPC's wording
    message = "the call did not end in time; set a longer --timeout";
  }
  if (absl::StartsWith(message, "a token is missing")) {
    absl::StrAppend(&message, " (set --token-file FILE)");
  }
  // gRPC returns this status if the server does not have the service.
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && message.empty()) {
    message = std::string(kNoClientServices);
  }
  return absl::Status(code, absl::StrCat(name, name.empty() ? "" : ": ", message));
}

}  // namespace tidepool::service
