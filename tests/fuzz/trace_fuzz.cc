// libFuzzer target: any bytes as a routing trace, plain or compressed. A trace that parses is
// replayed with every policy.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:trace_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "moe/replay/replay.h"
#include "moe/trace/trace.h"

namespace {

using namespace tidepool::moe;  // NOLINT

// Larger shapes are slow and find nothing new.
constexpr int64_t kMaxExperts = 1024;

void ReplayAll(const Trace& trace) {
  if (trace.header.all_experts() > kMaxExperts) return;
  const int64_t slots = (trace.header.all_experts() + 1) / 2;
  int64_t most = 0;
  for (const char* policy : {"belady", "hindsight", "adaptive", "tide", "lru", "static"}) {
    auto placement = MakePlacement(trace, slots, {policy, {}});
    CHECK_OK(placement.status());
    const ReplayResult result = Replay(trace, {}, placement->get());
    if (result.policy == "belady") most = result.counters.hits;
    CHECK_LE(result.counters.hits, most);
    CHECK_LE((*placement)->residency().residents(), slots);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto trace =
      ParseTrace("fuzz", absl::string_view(reinterpret_cast<const char*>(data), size));
  if (trace.ok()) {
    ReplayAll(*trace);
  } else {
    CHECK(!trace.status().message().empty());
    CHECK(!absl::StrContains(trace.status().message(), "\n"));
  }
  return 0;
}
