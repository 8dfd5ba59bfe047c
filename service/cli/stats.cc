// stats: shows a running server's counters and experts, once or every second.
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"
#include "service/cli/client.h"
#include "service/cli/commands.h"
#include "service/cli/heat_map.h"

namespace tidepool::service {
namespace {

constexpr int kRefreshMs = 1000;
constexpr absl::Duration kPatience = absl::Seconds(30);

// GetPlacement returns at the end of a step. If that takes longer, show the previous placement.
constexpr absl::Duration kPlacementPatience = absl::Milliseconds(800);
constexpr int kPipeColumns = 100;

struct Reading {
  Json stats;
  Json placement;  // null: unknown
  absl::Duration time;
};

// Tokens generated per second since the reading `before`. Negative if unknown.
double TokensPerSecond(const Json& worker, const Reading* before, absl::Duration now) {
  if (before == nullptr || now <= before->time) return -1;
  for (const Json& earlier : before->stats["workers"]) {
    if (earlier["worker_id"] != worker["worker_id"]) continue;
    const int64_t made = worker["generated_tokens_total"].get<int64_t>() -
                         earlier["generated_tokens_total"].get<int64_t>();
    // If the counter has decreased, the worker was restarted.
    return made < 0 ? -1 : made / absl::ToDoubleSeconds(now - before->time);
  }
  return -1;
}

// Formats the hit rate of these counters, such as "93.1 %", or "none" without lookups.
std::string HitRate(const Json& counters) {
  const double hits = counters["hits"].get<double>();
  const double lookups = hits + counters["misses"].get<double>();
  if (lookups == 0) return "none";
  return absl::StrFormat("%.1f %%", 100 * hits / lookups);
}

// Formats the host's memory below a GPU: its size and hit rate, and what was done with the misses
// of the GPU since the start.
std::string HostTierText(const Json& offload) {
  const Json& host = offload["host"];
  const Json& counters = offload["total"]["host"];
  const auto number = [](const Json& from, const char* key) { return from[key].get<double>(); };
  std::string text = absl::StrFormat(
      "  host tier   %.0f of %.0f experts, %s pinned; hit rate %s since the start\n",
      number(host, "slots"), number(offload, "experts"),
      FormatBytes(number(host, "capacity_bytes")), HitRate(counters));
  const double misses = number(counters, "copied") + number(counters, "copied_ahead") +
                        number(counters, "computed_on_cpu");
  if (misses == 0) return text;
  const auto share = [&](const char* key) { return 100 * number(counters, key) / misses; };
  absl::StrAppendFormat(&text,
                        "  misses      %.0f %% copied, %.0f %% copied ahead, %.0f %% computed on "
                        "the CPU; copies %s/s\n",
                        share("copied"), share("copied_ahead"), share("computed_on_cpu"),
                        FormatBytes(number(host, "copy_bytes_per_second")));
  return text;
}

// Formats sizes and hit rates (of the window, and since the start). Also formats the bytes per
// second and the waiting time of the window.
std::string OffloadText(const Json& offload) {
  const auto number = [](const Json& from, const char* key) { return from[key].get<double>(); };
  const Json& window = offload["window"];
  std::string text = absl::StrFormat(
      "  slots       %.0f of %.0f experts, %s; policy %s, read by %s\n", number(offload, "slots"),
      number(offload, "experts"), FormatBytes(number(offload, "capacity_bytes")),
      Shown(offload["policy"]), Shown(offload["reader"]));
  const double seconds = number(offload, "window_seconds");
  const bool recent = !window.is_null() && seconds > 0;
  absl::StrAppendFormat(&text, "  hit rate    %s since the start", HitRate(offload["total"]));
  if (recent) absl::StrAppendFormat(&text, ", %s in the last %.0f s", HitRate(window), seconds);
  text += "\n";
  if (offload.contains("host") && !offload["host"].is_null()) text += HostTierText(offload);
  if (!recent) return text;
  absl::StrAppendFormat(
      &text, "  reading     %s/s on demand, %s/s prefetched; waiting %.0f %% of the time\n",
      FormatBytes(number(window, "demand_bytes") / seconds),
      FormatBytes(number(window, "prefetch_bytes") / seconds),
      100 * number(window, "stall_seconds") / seconds);
  return text;
}

// Returns the layers of a worker's placement, with the uses and hit rates of the window. If the
// window has no uses, returns those since the worker's start.
std::vector<HeatLayer> HeatLayers(const Json& placement, const Json& offload) {
  bool any = false;
  for (const Json& layer : placement["layers"]) {
    for (const Json& uses : layer["uses_window"]) any = any || uses.get<int64_t>() > 0;
  }
  const Json& counters = offload[any ? "window" : "total"]["layers"];
  std::vector<HeatLayer> layers;
  for (const Json& layer : placement["layers"]) {
    HeatLayer& heat = layers.emplace_back();
    heat.number = layer["layer"].get<int>();
    heat.uses = layer[any ? "uses_window" : "uses_total"].get<std::vector<int64_t>>();
    heat.resident.resize(heat.uses.size());
    for (const Json& expert : layer["resident_experts"]) {
      const auto id = expert.get<size_t>();
      if (id < heat.resident.size()) heat.resident[id] = true;
    }
    for (const Json& of_layer : counters) {
      if (of_layer["layer"] != layer["layer"]) continue;
      heat.hits = of_layer["hits"].get<int64_t>();
      heat.misses = of_layer["misses"].get<int64_t>();
    }
  }
  return layers;
}

// Formats the used part of the KV file on disk, and the number of tokens that were read from it.
std::string KvDiskText(const Json& disk) {
  const auto number = [&](const char* key) { return disk[key].get<int64_t>(); };
  std::string text = absl::StrFormat(
      "  KV disk     %s of %s in %d blocks; %d tokens read back, %d blocks dropped\n",
      FormatBytes(disk["used_bytes"].get<double>()), FormatBytes(disk["limit_bytes"].get<double>()),
      number("blocks"), number("restored_tokens_total"), number("dropped_blocks_total"));
  const int64_t failed = number("failed_reads_total") + number("failed_writes_total");
  const int64_t damaged = number("damaged_blocks_total");
  if (failed + damaged > 0) {
    absl::StrAppendFormat(&text,
                          "              %d reads and writes failed, %d blocks were damaged\n",
                          failed, damaged);
  }
  return text;
}

bool IsOffloaded(const Json& worker) {
  return worker.contains("offload") && !worker["offload"].is_null();
}

bool AnyOffloaded(const Json& stats) {
  const Json& workers = stats["workers"];
  return std::any_of(workers.begin(), workers.end(), IsOffloaded);
}

// Returns the map of this worker's experts, if the worker reported a placement.
std::string MapText(const Json& worker, const Json& placement, const HeatMapSpace& space) {
  if (placement.is_null() || !IsOffloaded(worker)) return "";
  for (const Json& placed : placement["workers"]) {
    if (placed["address"] != worker["address"] || placed["layers"].empty()) continue;
    return DrawHeatMap(HeatLayers(placed, worker["offload"]), space);
  }
  return "";
}

std::string WorkerText(const Json& worker, double tokens_per_second) {
  const auto number = [&](const char* key) { return worker[key].get<int64_t>(); };
  std::string text =
      absl::StrFormat("worker %s %s\n", Shown(worker["worker_id"]), Shown(worker["address"]));
  if (number("status_code") != 0) {
    return text + absl::StrFormat("  does not respond: %s\n", Shown(worker["status_message"]));
  }
  absl::StrAppendFormat(&text, "  model       %s (%s), %s of weights, up %.0f s\n",
                        Shown(worker["model"]), Shown(worker["backend"]),
                        FormatBytes(worker["weight_bytes"].get<double>()),
                        worker["uptime_seconds"].get<double>());
  absl::StrAppendFormat(
      &text, "  sequences   %d running, %d waiting; %d finished, %d cancelled, %d failed\n",
      number("sequences_running"), number("sequences_waiting"), number("requests_finished_total"),
      number("requests_cancelled_total"), number("requests_failed_total"));
  absl::StrAppendFormat(&text, "  tokens      %d generated", number("generated_tokens_total"));
  if (tokens_per_second >= 0) {
    absl::StrAppendFormat(&text, ", %.1f tokens/s now", tokens_per_second);
  }
  absl::StrAppendFormat(&text, "; %d prompt, %d of them cached\n", number("prompt_tokens_total"),
                        number("cached_prompt_tokens_total"));
  absl::StrAppendFormat(&text, "  KV blocks   %d of %d free, %d cached, %d tokens each\n",
                        number("kv_blocks_free"), number("kv_blocks_total"),
                        number("kv_blocks_cached"), number("kv_block_tokens"));
  if (number("kv_state_bytes") > 0) {
    absl::StrAppendFormat(&text, "  states      %s each, %d checkpoints\n",
                          FormatBytes(worker["kv_state_bytes"].get<double>()),
                          number("kv_checkpoints"));
  }
  if (worker.contains("kv_disk") && !worker["kv_disk"].is_null()) {
    absl::StrAppend(&text, KvDiskText(worker["kv_disk"]));
  }
  const int64_t lookups = number("expert_hits_total") + number("expert_misses_total");
  if (lookups > 0) {
    absl::StrAppendFormat(&text, "  experts     %.1f %% of %d needed experts were in memory\n",
                          100.0 * number("expert_hits_total") / lookups, lookups);
  }
  if (IsOffloaded(worker)) absl::StrAppend(&text, OffloadText(worker["offload"]));
  return text + absl::StrFormat("  memory      %s resident\n",
                                FormatBytes(worker["resident_bytes"].get<double>()));
}

// Returns the rows and columns that are available for maps.
HeatMapSpace Space(const Console& console) {
  HeatMapSpace space = {.columns = kPipeColumns};
  if (!console.out_is_terminal()) return space;
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    space.columns = size.ws_col;
    space.rows = size.ws_row;
  }
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool plain = (no_colour != nullptr && *no_colour != 0) || terminal == nullptr ||
                     std::string(terminal) == "dumb";
  space.colour = plain ? Colour::kOff : Colour::kOn;
  return space;
}

// Draws the maps of all workers in the rows below the text `above`.
std::string Maps(const Reading& reading, const std::string& above, HeatMapSpace space) {
  const Json& workers = reading.stats["workers"];
  const auto drawn =
      std::max<int64_t>(1, std::count_if(workers.begin(), workers.end(), IsOffloaded));
  if (space.rows > 0) {
    const auto left = space.rows - 1 - std::count(above.begin(), above.end(), '\n');
    if (left < drawn) return "";
    space.rows = static_cast<int>(left / drawn);
  }
  std::string text;
  for (const Json& worker : workers) {
    absl::StrAppend(&text, MapText(worker, reading.placement, space));
  }
  return text;
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

// Returns an error if no worker responds, so that scripts can use the exit code.
absl::Status CheckWorkers(const Config& config, const Json& stats) {
  const Json& workers = stats["workers"];
  const bool any = std::any_of(workers.begin(), workers.end(), [](const Json& worker) {
    return worker["status_code"].get<int64_t>() == 0;
  });
  if (any) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(config.client.server, ": no worker responds"));
}

}  // namespace

absl::Status RunStats(const Config& config, Console* console) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(config));
  const bool clear = console->out_is_terminal() && !config.output.once;
  Reading before;
  bool first = true;
  while (true) {
    Reading now;
    ASSIGN_OR_RETURN(now.stats, client->Stats(kPatience));
    now.time = base::Clock::Real().Monotonic();
    if (config.output.format != OutputFormat::kJson && AnyOffloaded(now.stats)) {
      absl::StatusOr<Json> placement =
          client->Placement(config.output.once ? kPatience : kPlacementPatience);
      now.placement = placement.ok() ? *std::move(placement) : before.placement;
    }
    if (config.output.format == OutputFormat::kJson) {
      console->PrintJson(now.stats);
    } else {
      const std::string text = Text(now, first ? nullptr : &before);
      console->Print(
          absl::StrCat(clear ? "\033[H\033[2J" : "", text, Maps(now, text, Space(*console))));
    }
    RETURN_IF_ERROR(console->out_status());
    if (config.output.once) return CheckWorkers(config, now.stats);
    before = std::move(now);
    first = false;
    // Between two readings, check whether the reader of stdout has closed it.
    pollfd out = {STDOUT_FILENO, 0, 0};
    if (poll(&out, 1, kRefreshMs) > 0) return absl::OkStatus();
  }
}

}  // namespace tidepool::service
