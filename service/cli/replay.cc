// replay: runs placement policies on a routing trace.
#include "moe/replay/replay.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "moe/replay/tier_costs.h"
#include "moe/replay/tier_simulation.h"
#include "moe/trace/trace.h"
#include "service/base/files.h"
#include "service/base/units.h"
#include "service/cli/commands.h"

namespace tidepool::service {
namespace {

int64_t SlotsOf(const ReplaySlots& slots, const moe::TraceHeader& header) {
  if (slots.count > 0) return slots.count;
  return static_cast<int64_t>(static_cast<double>(header.all_experts()) * slots.percent / 100);
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// The fields that both kinds of simulation report.
Json CountsToJson(const std::string& policy, int64_t slots, const moe::PlacementCounters& counters,
                  const ReplayFlags& flags) {
  const int64_t lookups = counters.lookups();
  Json json = {
      {"policy", policy},
      {"slots_total", slots},
      {"lookups", lookups},
      {"hits", counters.hits},
      {"hit_rate", Share(static_cast<double>(counters.hits), static_cast<double>(lookups))},
      {"misses", counters.misses()},
      {"promotions", counters.promotions},
      {"pass_throughs", counters.pass_throughs}};
  if (policy == "tide") json["refresh_interval"] = flags.refresh_interval;
  return json;
}

Json ToJson(const moe::ReplayResult& result, const ReplayFlags& flags) {
  Json json = CountsToJson(result.policy, result.slots, result.counters, flags);
  json["bytes_moved"] = result.bytes_moved;
  json["step_ms"] = result.step_ms;
  return json;
}

Json ToJson(const moe::TierResult& result, const ReplayFlags& flags) {
  Json json = CountsToJson(result.policy, result.slots, result.counters, flags);
  json["copied"] = result.copied;
  json["computed_on_cpu"] = result.computed_on_cpu;
  json["copied_for_later"] = result.copied_for_later;
  json["tokens_per_s"] = result.tokens_per_s();
  json["step_ms"] = 1e3 * Share(result.seconds, static_cast<double>(result.forwards));
  json["device_busy"] = Share(result.device_seconds, result.seconds);
  json["copy_busy"] = Share(result.copy_seconds, result.seconds);
  json["cpu_busy"] = Share(result.cpu_seconds, result.seconds);
  json["copy_wait"] = Share(result.copy_wait_seconds, result.seconds);
  return json;
}

// Bytes of one expert. Layers may differ in size.
std::string RecordSize(const moe::TraceHeader& header) {
  const auto least = *std::min_element(header.expert_bytes.begin(), header.expert_bytes.end());
  const std::string most = FormatBytes(static_cast<double>(header.slot_bytes()));
  if (least == header.slot_bytes()) return most;
  return absl::StrCat(FormatBytes(static_cast<double>(least)), " to ", most);
}

std::string Describe(const moe::Trace& trace) {
  const moe::TraceHeader& header = trace.header;
  return absl::StrFormat("%s: %d layers of %d experts, top-%d, %s each; %d layer lines\n",
                         OneLine(header.model), header.layers, header.experts, header.top_k,
                         RecordSize(header), trace.entries.size());
}

void PrintHeader(const moe::Trace& trace, const ReplayFlags& flags, Console* console) {
  console->Print(absl::StrFormat(
      "%sstep times as if experts were read at %s/s and ran at %s/s (tidepool replay --help)\n\n"
      "%-10s %8s %10s %8s %10s %10s %10s %11s %9s\n",
      Describe(trace), FormatBytes(flags.read_bytes_per_s), FormatBytes(flags.memory_bytes_per_s),
      "policy", "slots", "lookups", "hit rate", "misses", "stayed", "passed", "read", "step ms"));
}

void PrintRow(const moe::ReplayResult& result, const Json& json, Console* console) {
  console->Print(absl::StrFormat(
      "%-10s %8d %10d %8.4f %10d %10d %10d %11s %9.3f\n", result.policy, result.slots,
      result.counters.lookups(), json["hit_rate"].get<double>(), result.counters.misses(),
      result.counters.promotions, result.counters.pass_throughs,
      FormatBytes(static_cast<double>(result.bytes_moved)), result.step_ms));
}

void PrintTierHeader(const moe::Trace& trace, const ReplayFlags& flags, Console* console) {
  console->Print(absl::StrFormat(
      "%spredicted from the costs in %s: on CPU, copied and later are shares of the misses;\n"
      "GPU, copies and CPU are the shares of the time in which these are busy\n\n"
      "%-10s %8s %8s %9s %9s %7s %7s %7s %7s %7s %7s\n",
      Describe(trace), OneLine(flags.device_costs), "policy", "slots", "hit rate", "tokens/s",
      "step ms", "on CPU", "copied", "later", "GPU", "copies", "CPU"));
}

void PrintTierRow(const moe::TierResult& result, const Json& json, Console* console) {
  const auto misses = static_cast<double>(result.counters.misses());
  const auto of_misses = [misses](int64_t count) {
    return 100 * Share(static_cast<double>(count), misses);
  };
  const auto busy = [&json](const char* name) { return 100 * json[name].get<double>(); };
  console->Print(absl::StrFormat(
      "%-10s %8d %8.4f %9.1f %9.3f %6.1f%% %6.1f%% %6.1f%% %6.1f%% %6.1f%% %6.1f%%\n",
      result.policy, result.slots, json["hit_rate"].get<double>(), result.tokens_per_s(),
      json["step_ms"].get<double>(), of_misses(result.computed_on_cpu), of_misses(result.copied),
      of_misses(result.copied_for_later), busy("device_busy"), busy("copy_busy"),
      busy("cpu_busy")));
}

// What a replay simulates on a trace.
struct Simulation {
  moe::CostModel cost;
  std::optional<moe::TierCosts> tier;  // the costs in --device-costs
  Json cost_json;
};

absl::StatusOr<Simulation> ReadCosts(const ReplayFlags& flags) {
  Simulation simulation;
  if (flags.device_costs.empty()) {
    simulation.cost = {.read_bytes_per_s = flags.read_bytes_per_s,
                       .memory_bytes_per_s = flags.memory_bytes_per_s};
    simulation.cost_json = {{"read_bytes_per_s", flags.read_bytes_per_s},
                            {"memory_bytes_per_s", flags.memory_bytes_per_s}};
    return simulation;
  }
  constexpr size_t kMaxBytes = size_t{1} << 20;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.device_costs, kMaxBytes));
  ASSIGN_OR_RETURN(simulation.tier, moe::ParseTierCosts(flags.device_costs, text));
  simulation.cost_json = Json::parse(text);
  return simulation;
}

// Simulates the placement. Prints a row unless the output is JSON.
Json Simulate(const moe::Trace& trace, const Simulation& simulation, const Config& config,
              moe::Placement* placement, Console* console) {
  const bool to_json = config.output.format == OutputFormat::kJson;
  if (simulation.tier.has_value()) {
    const moe::TierResult result = moe::SimulateTier(trace, {.costs = *simulation.tier}, placement);
    Json json = ToJson(result, config.replay);
    if (!to_json) PrintTierRow(result, json, console);
    return json;
  }
  const moe::ReplayResult result = moe::Replay(trace, simulation.cost, placement);
  Json json = ToJson(result, config.replay);
  if (!to_json) PrintRow(result, json, console);
  return json;
}

}  // namespace

absl::Status RunReplay(const Config& config, Console* console) {
  const ReplayFlags& flags = config.replay;
  ASSIGN_OR_RETURN(const Simulation simulation, ReadCosts(flags));
  ASSIGN_OR_RETURN(moe::Trace trace, moe::ReadTrace(flags.trace));
  std::vector<int64_t> profile;
  if (!flags.profile.empty()) {
    ASSIGN_OR_RETURN(profile,
                     moe::ReadProfile(flags.profile, trace.header.layers, trace.header.experts));
  }
  // The device's costs are for experts of one size, so all layers get this size.
  if (simulation.tier.has_value()) {
    trace.header.expert_bytes.assign(trace.header.layers, simulation.tier->expert_bytes);
  }
  const bool to_json = config.output.format == OutputFormat::kJson;
  if (!to_json) {
    (simulation.tier.has_value() ? PrintTierHeader : PrintHeader)(trace, flags, console);
  }
  Json results = Json::array();
  for (const ReplaySlots& slots : flags.slots) {
    for (const std::string& name : flags.policies) {
      ASSIGN_OR_RETURN(
          const std::unique_ptr<moe::Placement> placement,
          moe::MakePlacement(
              trace, SlotsOf(slots, trace.header),
              {name, {.refresh_interval = flags.refresh_interval, .profile = profile}}));
      results.push_back(Simulate(trace, simulation, config, placement.get(), console));
    }
  }
  if (to_json) {
    console->PrintJson(
        {{"trace", flags.trace},
         {"model", trace.header.model},
         {"layers", trace.header.layers},
         {"experts", trace.header.experts},
         {"top_k", trace.header.top_k},
         {"slot_bytes", trace.header.slot_bytes()},
         {simulation.tier.has_value() ? "device_costs" : "cost", simulation.cost_json},
         {"results", results}});
  }
  return console->out_status();
}

}  // namespace tidepool::service
