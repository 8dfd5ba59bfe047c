// replay: runs placement policies on a routing trace.
#include "moe/replay/replay.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "moe/replay/trace.h"
#include "service/base/units.h"
#include "service/cli/commands.h"

namespace tidepool::service {
namespace {

int64_t SlotsOf(const ReplaySlots& slots, const moe::TraceHeader& header) {
  if (slots.count > 0) return slots.count;
  return static_cast<int64_t>(static_cast<double>(header.all_experts()) * slots.percent / 100);
}

Json ToJson(const moe::ReplayResult& result, const ReplayFlags& flags) {
  const int64_t lookups = result.counters.lookups();
  const double hit_rate =
      lookups > 0 ? static_cast<double>(result.counters.hits) / static_cast<double>(lookups) : 0;
  Json json = {{"policy", result.policy},
               {"slots_total", result.slots},
               {"lookups", lookups},
               {"hits", result.counters.hits},
               {"hit_rate", hit_rate},
               {"misses", result.counters.misses()},
               {"promotions", result.counters.promotions},
               {"pass_throughs", result.counters.pass_throughs},
               {"bytes_moved", result.bytes_moved},
               {"step_ms", result.step_ms}};
  if (result.policy == "tide") json["refresh_interval"] = flags.refresh_interval;
  return json;
}

// Bytes of one expert. Layers may differ in size.
std::string RecordSize(const moe::TraceHeader& header) {
  const auto least = *std::min_element(header.expert_bytes.begin(), header.expert_bytes.end());
  const std::string most = FormatBytes(static_cast<double>(header.slot_bytes()));
  if (least == header.slot_bytes()) return most;
  return absl::StrCat(FormatBytes(static_cast<double>(least)), " to ", most);
}

void PrintHeader(const moe::Trace& trace, const ReplayFlags& flags, Console* console) {
  const moe::TraceHeader& header = trace.header;
  console->Print(absl::StrFormat(
      "%s: %d layers of %d experts, top-%d, %s each; %d layer lines\n"
      "step times as if experts were read at %s/s and ran at %s/s (tidepool replay --help)\n\n"
      "%-10s %8s %10s %8s %10s %10s %10s %11s %9s\n",
      OneLine(header.model), header.layers, header.experts, header.top_k, RecordSize(header),
      trace.entries.size(), FormatBytes(flags.read_bytes_per_s),
      FormatBytes(flags.memory_bytes_per_s), "policy", "slots", "lookups", "hit rate", "misses",
      "stayed", "passed", "read", "step ms"));
}

void PrintRow(const moe::ReplayResult& result, const Json& json, Console* console) {
  console->Print(absl::StrFormat(
      "%-10s %8d %10d %8.4f %10d %10d %10d %11s %9.3f\n", result.policy, result.slots,
      result.counters.lookups(), json["hit_rate"].get<double>(), result.counters.misses(),
      result.counters.promotions, result.counters.pass_throughs,
      FormatBytes(static_cast<double>(result.bytes_moved)), result.step_ms));
}

}  // namespace

absl::Status RunReplay(const Config& config, Console* console) {
  const ReplayFlags& flags = config.replay;
  ASSIGN_OR_RETURN(const moe::Trace trace, moe::ReadTrace(flags.trace));
  std::vector<int64_t> profile;
  if (!flags.profile.empty()) {
    ASSIGN_OR_RETURN(profile,
                     moe::ReadProfile(flags.profile, trace.header.layers, trace.header.experts));
  }
  const moe::CostModel cost{.read_bytes_per_s = flags.read_bytes_per_s,
                            .memory_bytes_per_s = flags.memory_bytes_per_s};
  const bool to_json = config.output.format == OutputFormat::kJson;
  if (!to_json) PrintHeader(trace, flags, console);
  Json results = Json::array();
  for (const ReplaySlots& slots : flags.slots) {
    for (const std::string& name : flags.policies) {
      ASSIGN_OR_RETURN(
          const std::unique_ptr<moe::Placement> placement,
          moe::MakePlacement(
              trace, SlotsOf(slots, trace.header),
              {name, {.refresh_interval = flags.refresh_interval, .profile = profile}}));
      const moe::ReplayResult result = moe::Replay(trace, cost, placement.get());
      const Json json = ToJson(result, flags);
      if (!to_json) PrintRow(result, json, console);
      results.push_back(json);
    }
  }
  if (to_json) {
    console->PrintJson({{"trace", flags.trace},
                        {"model", trace.header.model},
                        {"layers", trace.header.layers},
                        {"experts", trace.header.experts},
                        {"top_k", trace.header.top_k},
                        {"slot_bytes", trace.header.slot_bytes()},
                        {"cost",
                         {{"read_bytes_per_s", flags.read_bytes_per_s},
                          {"memory_bytes_per_s", flags.memory_bytes_per_s}}},
                        {"results", results}});
  }
  return console->out_status();
}

}  // namespace tidepool::service
