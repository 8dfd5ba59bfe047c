#include "service/cli/traffic_flags.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"
#include "service/cli/flag_setters.h"

namespace tidepool::service {
namespace {

constexpr int kMaxRate = 1'000'000;
constexpr int64_t kMaxCallers = 1'000'000;
constexpr absl::Duration kMinDuration = absl::Milliseconds(100);

absl::Status SetDuration(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->traffic.duration, ParseTime(value));
  if (config->traffic.duration >= kMinDuration) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("must be at least 100ms (got ", value, ")"));
}

constexpr CommandSet kBench = Bit(Command::kBench);
constexpr FlagKind kValue = FlagKind::kValue;
using T = TrafficFlags;

constexpr FlagSpec kFlags[] = {
    {"server", 0, kTrafficGroup, "HOST:PORT", "",
     "measure this server instead of a --model; the other flags of this group require it", kBench,
     kValue, SetAddress<&Config::client, &ClientFlags::server>},
    {"rate", 0, kTrafficGroup, "X", "",
     "requests per second, sent at random times (Poisson), even if earlier ones still run", kBench,
     kValue, SetPositiveNumber<kMaxRate, &Config::traffic, &T::rate>},
    {"concurrency", 0, kTrafficGroup, "N", "",
     "number of callers, instead of --rate. Each caller sends its next request when its last one "
     "has ended. If that one was refused, the caller first waits as the server's retry hint says",
     kBench, kValue, SetInteger<1, kMaxCallers, &Config::traffic, &T::concurrency>},
    {"duration", 0, kTrafficGroup, "TIME", "30s", "duration of the measurement", kBench, kValue,
     SetDuration},
    {"warm-up", 0, kTrafficGroup, "TIME", "5s",
     "time under the same load before the measurement starts", kBench, kValue,
     SetTime<&Config::traffic, &T::warm_up>},
    {"shared-prompt-tokens", 0, kTrafficGroup, "N", "0",
     "length of a prefix that all prompts share; --prompt-tokens includes it", kBench, kValue,
     SetInteger<0, 1 << 20, &Config::traffic, &T::shared_prompt_tokens>},
    {"priority", 0, kTrafficGroup, "N,N,...", "unset",
     "priorities; each request uses one of them at random. The report also has the results of each "
     "priority",
     kBench, FlagKind::kRepeats, AddIntegers<-100, 100, &Config::traffic, &T::priorities>},
    {"retries", 0, kTrafficGroup, "N", "0",
     "maximum number of times that a refused request is sent again, after the server's retry hint",
     kBench, kValue, SetInteger<0, 1000, &Config::traffic, &T::retries>},
    {"connections", 0, kTrafficGroup, "N", "8", "number of connections to the server", kBench,
     kValue, SetInteger<1, 10'000, &Config::traffic, &T::connections>},
    {"seed", 0, kTrafficGroup, "N", "1",
     "seed of all random choices; the same seed gives the same requests at the same times", kBench,
     kValue, SetInteger<0, std::numeric_limits<int64_t>::max(), &Config::traffic, &T::seed>},
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
        "set either --rate (requests per second) or --concurrency (callers)");
  }
  if (HasZero(config.bench.prompt_tokens) || HasZero(config.bench.output_tokens)) {
    return absl::InvalidArgumentError(
        "--prompt-tokens and --output-tokens must be at least 1 with --server");
  }
  return absl::OkStatus();
}

}  // namespace tidepool::service
