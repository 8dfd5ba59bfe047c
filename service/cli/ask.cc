#include "service/cli/ask.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {

namespace {

// The time limit of the check. If a front's workers refuse connections, the front responds at once.
// If a worker hangs, the check times out.
constexpr absl::Duration kLook = absl::Seconds(1);

std::string WorkerTrouble(const Json& workers) {
  for (const Json& worker : workers) {
    if (worker["status_code"].get<int64_t>() == 0) return "";
  }
  if (workers.empty()) return "it has no worker";
  return absl::StrCat(workers[0]["address"].get<std::string>(), ": ",
                      workers[0]["status_message"].get<std::string>());
}

// Returns an error if the server cannot serve requests. Prints a note if requests will wait for
// workers. Skips the check if the caller may not call Admin.
absl::Status CheckServer(const Config& config, Client* client, Console* console) {
  const absl::StatusOr<Json> stats = client->Stats(kLook);
  std::string trouble;
  if (absl::IsDeadlineExceeded(stats.status())) {
    trouble = "it did not report any within a second";
  } else if (absl::IsPermissionDenied(stats.status())) {
    return absl::OkStatus();
  } else if (!stats.ok()) {
    return stats.status();
  } else if ((*stats)["front"].is_null()) {
    return absl::UnimplementedError(absl::StrCat(config.client.server, ": ", kNoClientServices));
  } else {
    trouble = WorkerTrouble((*stats)["workers"]);
  }
  if (trouble.empty()) return absl::OkStatus();
  console->Note(
      OneLine(absl::StrCat("waiting for a worker of ", config.client.server, ": ", trouble)) +
      "\n");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Connection> OpenConnection(const Config& config, Console* console) {
  Connection connection;
  if (!config.client.server.empty()) {
    ASSIGN_OR_RETURN(connection.client, Client::Connect(config));
    RETURN_IF_ERROR(CheckServer(config, connection.client.get(), console));
    return connection;
  }
  ASSIGN_OR_RETURN(connection.local, StartLocalServer(config, LocalRole::kPrivate, {}, console));
  connection.client = Client::Over(connection.local->server().InProcessChannel(), "");
  return connection;
}

std::string Summary(const ClientResponse& response, const GenerationFlags& wanted) {
  const int64_t tokens = static_cast<int64_t>(response.token_ids.size());
  std::string text = absl::StrFormat("%d tokens", tokens);
  const double decode_seconds = absl::ToDoubleSeconds(response.total - response.first_message);
  // The time to the first token is not counted here, because it belongs to prefill.
  if (tokens > 1 && decode_seconds > 0) {
    absl::StrAppendFormat(&text, ", %.1f tokens/s", (tokens - 1) / decode_seconds);
  }
  absl::StrAppendFormat(
      &text, "; first after %.2f s, all in %.2f s, %d messages; prompt %d tokens, %d cached",
      absl::ToDoubleSeconds(response.first_message), absl::ToDoubleSeconds(response.total),
      response.messages, response.prompt_tokens, response.cached_tokens);
  const auto experts = [&](const char* key) {
    return response.usage.is_object() ? response.usage.value(key, int64_t{0}) : 0;
  };
  if (experts("expert_misses") > 0) {
    const int64_t needs = experts("expert_hits") + experts("expert_misses");
    absl::StrAppendFormat(
        &text, "; %.1f %% of %d needed experts were in memory",
        100.0 * static_cast<double>(experts("expert_hits")) / static_cast<double>(needs), needs);
  }
  if (response.finish_reason == "LENGTH" && wanted.max_tokens.value_or(0) > tokens) {
    absl::StrAppendFormat(&text, "; the context was full before --max-tokens %d",
                          *wanted.max_tokens);
  }
  return text;
}

}  // namespace tidepool::service
