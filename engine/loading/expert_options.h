// ExpertOptions: settings for experts, of which some may not fit into memory.
#ifndef TIDEPOOL_ENGINE_LOADING_EXPERT_OPTIONS_H_
#define TIDEPOOL_ENGINE_LOADING_EXPERT_OPTIONS_H_

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/loading/expert_memory.h"
#include "moe/policy/placement_policy.h"
#include "moe/record_reader.h"
#include "moe/tiered_experts.h"

namespace tidepool::engine {

struct ExpertOptions {
  ExpertMemory memory;  // of the device that runs the model
  // Only with a GPU: pinned memory of the host, for the experts that the GPU's memory has no room
  // for.
  ExpertMemory host_memory;
  // The limits of the host's memory. A GPU's memory has the same reserve and KV. LoadModel computes
  // the other limits of a GPU's memory.
  MemoryLimits limits;
  std::string cache_dir;  // directory for pack files; empty: next to the checkpoint
  int staging = 8;
  moe::PolicyOptions policy;
  // path of a routing trace whose counts become policy.profile; empty: no profile
  std::string profile_path;
  moe::Prefetch prefetch = moe::Prefetch::kOn;
  moe::ReaderKind reader = moe::ReaderKind::kAuto;
  // Receives one-line messages for people about faults that were handled, while the model is loaded
  // and while it is served. Called on several threads. May be empty.
  std::function<void(absl::string_view line)> note;
  // path of the routing trace (moe/trace/trace.h) to write; empty: no trace
  std::string trace_path;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_EXPERT_OPTIONS_H_
