#include "service/cli/ask.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {

absl::StatusOr<Connection> OpenConnection(const Config& config, Log* log, Console* console) {
  Connection connection;
  if (!config.server.empty()) {
    connection.client = Client::Connect(config.server);
    return connection;
  }
  ASSIGN_OR_RETURN(connection.local, StartLocalServer(config, LocalRole::kPrivate, log, console));
  connection.client = Client::Over(connection.local->server().InProcessChannel(), "");
  return connection;
}

std::string Summary(const Answer& answer) {
  const int64_t tokens = static_cast<int64_t>(answer.token_ids.size());
  std::string text = absl::StrFormat("%d tokens", tokens);
  const double decode_seconds = absl::ToDoubleSeconds(answer.total - answer.first_message);
  // The first token is the prompt's price, not decoding's.
  if (tokens > 1 && decode_seconds > 0) {
    absl::StrAppendFormat(&text, ", %.1f tokens/s", (tokens - 1) / decode_seconds);
  }
  absl::StrAppendFormat(
      &text, "; first after %.2f s, all in %.2f s, %d messages; prompt %d tokens, %d cached",
      absl::ToDoubleSeconds(answer.first_message), absl::ToDoubleSeconds(answer.total),
      answer.messages, answer.prompt_tokens, answer.cached_tokens);
  return text;
}

}  // namespace tidepool::service
