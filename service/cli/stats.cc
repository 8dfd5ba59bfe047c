// stats: a running server's counters, once or each second.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "service/cli/client.h"
#include "service/cli/commands.h"
#include "service/cli/units.h"

namespace tidepool::service {
namespace {

constexpr int kRefreshMs = 1000;
constexpr absl::Duration kPatience = absl::Seconds(30);

struct Reading {
  Json stats;
  absl::Duration time;
};

// Tokens made since `before`, per second; negative: not known yet.
double TokensPerSecond(const Json& worker, const Reading* before, absl::Duration now) {
  if (before == nullptr || now <= before->time) return -1;
  for (const Json& earlier : before->stats["workers"]) {
    if (earlier["worker_id"] != worker["worker_id"]) continue;
    const int64_t made = worker["generated_tokens_total"].get<int64_t>() -
                         earlier["generated_tokens_total"].get<int64_t>();
    // Fewer than before: the worker was started anew.
    return made < 0 ? -1 : made / absl::ToDoubleSeconds(now - before->time);
  }
  return -1;
}

// Bytes per second over the window, hit rate, waiting.
std::string OffloadText(const Json& offload) {
  const auto number = [](const Json& from, const char* key) { return from[key].get<double>(); };
  const Json& window = offload["window"];
  std::string text = absl::StrFormat(
      "  slots       %.0f of %.0f experts, %s; policy %s, read by %s\n", number(offload, "slots"),
      number(offload, "experts"), FormatBytes(number(offload, "capacity_bytes")),
      offload["policy"].get<std::string>(), offload["reader"].get<std::string>());
  const double seconds = number(offload, "window_seconds");
  if (window.is_null() || seconds <= 0) return text;
  const double lookups = number(window, "hits") + number(window, "misses");
  absl::StrAppendFormat(
      &text,
      "  last %.0f s   %.1f %% hits, %s/s on demand, %s/s ahead, waiting %.0f %% of the time\n",
      seconds, lookups > 0 ? 100 * number(window, "hits") / lookups : 0,
      FormatBytes(number(window, "demand_bytes") / seconds),
      FormatBytes(number(window, "prefetch_bytes") / seconds),
      100 * number(window, "stall_seconds") / seconds);
  return text;
}

std::string WorkerText(const Json& worker, double tokens_per_second) {
  const auto number = [&](const char* key) { return worker[key].get<int64_t>(); };
  std::string text = absl::StrFormat("worker %s %s\n", worker["worker_id"].get<std::string>(),
                                     worker["address"].get<std::string>());
  if (number("status_code") != 0) {
    return text +
           absl::StrFormat("  does not answer: %s\n", worker["status_message"].get<std::string>());
  }
  absl::StrAppendFormat(&text, "  model       %s (%s), %s of weights, up %.0f s\n",
                        worker["model"].get<std::string>(), worker["backend"].get<std::string>(),
                        FormatBytes(worker["weight_bytes"].get<double>()),
                        worker["uptime_seconds"].get<double>());
  absl::StrAppendFormat(
      &text, "  sequences   %d running, %d waiting; %d finished, %d cancelled, %d failed\n",
      number("sequences_running"), number("sequences_waiting"), number("requests_finished_total"),
      number("requests_cancelled_total"), number("requests_failed_total"));
  absl::StrAppendFormat(&text, "  tokens      %d generated", number("generated_tokens_total"));
  if (tokens_per_second >= 0)
    absl::StrAppendFormat(&text, ", %.1f tokens/s now", tokens_per_second);
  absl::StrAppendFormat(&text, "; %d prompt, %d of them cached\n", number("prompt_tokens_total"),
                        number("cached_prompt_tokens_total"));
  absl::StrAppendFormat(&text, "  KV blocks   %d of %d free, %d cached, %d tokens each\n",
                        number("kv_blocks_free"), number("kv_blocks_total"),
                        number("kv_blocks_cached"), number("kv_block_tokens"));
  const int64_t lookups = number("expert_hits_total") + number("expert_misses_total");
  if (lookups > 0) {
    absl::StrAppendFormat(&text, "  experts     %.1f %% of %d needs were in fast memory\n",
                          100.0 * number("expert_hits_total") / lookups, lookups);
  }
  if (worker.contains("offload") && !worker["offload"].is_null()) {
    absl::StrAppend(&text, OffloadText(worker["offload"]));
  }
  return text + absl::StrFormat("  memory      %s resident\n",
                                FormatBytes(worker["resident_bytes"].get<double>()));
}

std::string Text(const Reading& now, const Reading* before) {
  std::string text;
  const Json& front = now.stats["front"];
  if (!front.is_null()) {
    absl::StrAppendFormat(
        &text,
        "front, up %.0f s: %d streams running, %d requests (%d failed), %d sessions, %d "
        "failovers\n",
        front["uptime_seconds"].get<double>(), front["streams_running"].get<int64_t>(),
        front["requests_total"].get<int64_t>(), front["requests_failed_total"].get<int64_t>(),
        front["sessions"].get<int64_t>(), front["failovers_total"].get<int64_t>());
  }
  for (const Json& worker : now.stats["workers"]) {
    absl::StrAppend(&text, WorkerText(worker, TokensPerSecond(worker, before, now.time)));
  }
  return text;
}

// What a script wants to know of one reading: whether anything computes.
absl::Status CheckWorkers(const Config& config, const Json& stats) {
  const Json& workers = stats["workers"];
  const bool any = std::any_of(workers.begin(), workers.end(), [](const Json& worker) {
    return worker["status_code"].get<int64_t>() == 0;
  });
  if (any) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(config.server, ": no worker answers"));
}

}  // namespace

absl::Status RunStats(const Config& config, Console* console) {
  const std::unique_ptr<Client> client = Client::Connect(config.server);
  const bool clear = console->out_is_terminal() && !config.once;
  Reading before;
  bool first = true;
  while (true) {
    Reading now;
    ASSIGN_OR_RETURN(now.stats, client->Stats(kPatience));
    now.time = base::Clock::Real().Monotonic();
    if (config.output == OutputFormat::kJson) {
      console->PrintJson(now.stats);
    } else {
      console->Print(
          absl::StrCat(clear ? "\033[H\033[2J" : "", Text(now, first ? nullptr : &before)));
    }
    RETURN_IF_ERROR(console->out_status());
    if (config.once) return CheckWorkers(config, now.stats);
    before = std::move(now);
    first = false;
    // Between readings, notice a reader of stdout that has gone.
    pollfd out = {STDOUT_FILENO, 0, 0};
    if (poll(&out, 1, kRefreshMs) > 0) return absl::OkStatus();
  }
}

}  // namespace tidepool::service
