// Writes traces for `tidepool replay` and replay_table.py: either those used to choose the
// constants of policies ("design"), or those held out to test the choice:
//
//   bazel run --config=opt //tests/bench:make_traces -- DIR design|held-out SEED
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "kernels/base/status_macros.h"
#include "moe/replay/trace.h"
#include "moe/replay/trace_writer.h"
#include "tests/moe/replay/trace_kinds.h"

namespace tidepool::moe {
namespace {

absl::Status Write(const Trace& trace, const std::string& path) {
  ASSIGN_OR_RETURN(const auto writer, TraceWriter::Create(path, trace.header));
  for (const TraceEntry& entry : trace.entries) {
    RETURN_IF_ERROR(writer->Write(entry.routing(trace.header.top_k)));
  }
  return writer->Close();
}

int Main(const std::string& folder, const std::string& use, uint32_t seed) {
  if (use != "design" && use != "held-out") {
    std::cerr << "\"" << use << "\" is neither design nor held-out\n";
    return 1;
  }
  for (const TraceKind& kind : TraceKinds()) {
    if ((kind.use == KindUse::kDesign) != (use == "design")) continue;
    const std::string path = folder + "/" + kind.name + ".jsonl.zst";
    const absl::Status status = Write(MakeTrace(kind, seed), path);
    if (!status.ok()) {
      std::cerr << status.message() << "\n";
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace tidepool::moe

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: make_traces DIR design|held-out SEED\n";
    return 1;
  }
  return tidepool::moe::Main(argv[1], argv[2], static_cast<uint32_t>(std::atoi(argv[3])));
}
