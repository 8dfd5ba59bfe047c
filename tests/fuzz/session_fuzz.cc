// libFuzzer target: any bytes as an export of sessions, and as the note of a store's last commit.
// An accepted session has all required properties, is written as it was read, and can be cut
// wherever PlanCut allows.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:session_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "kernels/base/check.h"
#include "service/store/session_check.h"
#include "service/store/session_cut.h"
#include "service/store/session_json.h"
#include "service/store/store_witness.h"

namespace {

using namespace tidepool::service;  // NOLINT

void CutEverywhere(const SessionLogData& session) {
  constexpr int64_t kMaxCuts = 64;
  for (int64_t i = 0; i <= kMaxCuts; ++i) {
    const int64_t position = session.info.token_count * i / kMaxCuts;
    const auto cut = PlanCut(session, position);
    if (!cut.ok()) continue;
    SessionLogData log = session;
    CutSession(*cut, "kept", &log);
    CHECK_EQ(log.info.token_count, position);
    CHECK_OK(CheckSession(log));
  }
}

absl::Status Take(const SessionLogData& session) {
  const std::string line = SessionToJson(session);
  const auto again = SessionFromJson(line);
  CHECK_OK(again.status());
  CHECK(SessionToJson(*again) == line);
  CutEverywhere(session);
  return absl::OkStatus();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  // The note of the last commit is written as it was read.
  if (const auto commit = ParseWitness(bytes); commit.has_value()) {
    CHECK(absl::StartsWith(bytes, FormatWitness(*commit)));
  }
  std::istringstream in(bytes);
  const auto faults = ReadExport(in, Take);
  if (!faults.ok()) {
    CHECK(absl::StrContains(faults.status().message(), "line "));
    return 0;
  }
  for (const std::string& fault : *faults) {
    CHECK(absl::StrContains(fault, "line "));
    CHECK(!absl::StrContains(fault, "\n"));
  }
  return 0;
}
