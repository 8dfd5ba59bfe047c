// Writes traces for `tidepool replay` and replay_table.py. "design" traces are used to choose the
// constants of policies, and "held-out" traces to test the choice. "models" traces have the shape
// of real models:
//
//   bazel run --config=opt //tests/bench:make_traces -- DIR design|held-out|models SEED
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/status_macros.h"
#include "moe/trace/trace.h"
#include "moe/trace/trace_writer.h"
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

// Returns no kinds for an unknown use.
std::vector<TraceKind> KindsFor(const std::string& use) {
  if (use == "models") return ModelKinds();
  std::vector<TraceKind> kinds;
  if (use != "design" && use != "held-out") return kinds;
  for (const TraceKind& kind : TraceKinds()) {
    if ((kind.use == KindUse::kDesign) == (use == "design")) kinds.push_back(kind);
  }
  return kinds;
}

int Main(const std::string& folder, const std::string& use, uint32_t seed) {
  const std::vector<TraceKind> kinds = KindsFor(use);
  if (kinds.empty()) {
    std::cerr << "\"" << use << "\" is neither design nor held-out nor models\n";
    return 1;
  }
  for (const TraceKind& kind : kinds) {
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
    std::cerr << "usage: make_traces DIR design|held-out|models SEED\n";
    return 1;
  }
  return tidepool::moe::Main(argv[1], argv[2], static_cast<uint32_t>(std::atoi(argv[3])));
}
