#include "service/cli/traffic_flags.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/base/status_macros.h"
#include "service/cli/server_flags.h"
#include "service/cli/units.h"

namespace tidepool::service {
namespace {

constexpr int kMostRate = 1'000'000;
constexpr int64_t kMostCallers = 1'000'000;
constexpr absl::Duration kLeastDuration = absl::Milliseconds(100);

template <auto member, int64_t least, int64_t most>
absl::Status SetCount(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->traffic.*member, ParseInteger(value, least, most));
  return absl::OkStatus();
}

absl::Status SetRate(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->traffic.rate, ParseNumber(value, 0, kMostRate));
  if (config->traffic.rate > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("0 requests a second are none");
}

absl::Status SetDuration(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->traffic.duration, ParseTime(value));
  if (config->traffic.duration >= kLeastDuration) return absl::OkStatus();
  return absl::InvalidArgumentError("less than 100ms");
}

absl::Status SetWarmUp(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->traffic.warm_up, ParseTime(value));
  return absl::OkStatus();
}

absl::Status AddPriorities(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> priorities, ParseIntegers(value, -100, 100));
  config->traffic.priorities.insert(config->traffic.priorities.end(), priorities.begin(),
                                    priorities.end());
  return absl::OkStatus();
}

absl::Status SetSeed(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(const int64_t seed, ParseInteger(value, 0, std::numeric_limits<int64_t>::max()));
  config->traffic.seed = static_cast<uint64_t>(seed);
  return absl::OkStatus();
}

constexpr CommandSet kBench = Bit(Command::kBench);
constexpr FlagKind kValue = FlagKind::kValue;
using T = TrafficFlags;

constexpr FlagSpec kFlags[] = {
    {"server", 0, kTrafficGroup, "HOST:PORT", "",
     "server to send load to; the flags below need it, and --model does not apply", kBench, kValue,
     SetServer},
    {"rate", 0, kTrafficGroup, "X", "",
     "requests per second at random times (Poisson), independent of earlier requests", kBench,
     kValue, SetRate},
    {"concurrency", 0, kTrafficGroup, "N", "",
     "instead of --rate: number of callers; each sends its next request when the last one has "
     "ended, or after the server's retry hint",
     kBench, kValue, SetCount<&T::concurrency, 1, kMostCallers>},
    {"duration", 0, kTrafficGroup, "TIME", "30s", "measured time", kBench, kValue, SetDuration},
    {"warm-up", 0, kTrafficGroup, "TIME", "5s", "time before the measurement, under the same load",
     kBench, kValue, SetWarmUp},
    {"shared-prompt-tokens", 0, kTrafficGroup, "N", "0",
     "length of a common prefix of all prompts, part of --prompt-tokens", kBench, kValue,
     SetCount<&T::shared_prompt_tokens, 0, 1 << 20>},
    {"priority", 0, kTrafficGroup, "N,N,...", "unset",
     "priorities to draw from; each is also reported by itself", kBench, FlagKind::kRepeats,
     AddPriorities},
    {"retries", 0, kTrafficGroup, "N", "0",
     "times that a refused request is sent again, after the server's retry hint", kBench, kValue,
     SetCount<&T::retries, 0, 1000>},
    {"connections", 0, kTrafficGroup, "N", "8", "connections to the server", kBench, kValue,
     SetCount<&T::connections, 1, 10'000>},
    {"seed", 0, kTrafficGroup, "N", "1", "equal seeds give equal requests at equal times", kBench,
     kValue, SetSeed},
};

bool HasZero(const std::vector<int64_t>& sizes) {
  return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
}

}  // namespace

absl::Span<const FlagSpec> TrafficFlagSpecs() { return kFlags; }

absl::Status ValidateTraffic(const Config& config) {
  const TrafficFlags& traffic = config.traffic;
  if ((traffic.rate > 0) == (traffic.concurrency > 0)) {
    return absl::InvalidArgumentError(
        "give --rate, in requests a second, or --concurrency, in callers");
  }
  if (HasZero(config.bench.prompt_tokens) || HasZero(config.bench.output_tokens)) {
    return absl::InvalidArgumentError(
        "--prompt-tokens and --output-tokens are at least 1 with --server");
  }
  return absl::OkStatus();
}

}  // namespace tidepool::service
