// ExpertOptions: settings for experts that may not all fit into memory.
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
  ExpertMemory memory;
  MemoryLimits limits;
  std::string cache_dir;  // directory of pack files; empty: next to the checkpoint
  int staging = 8;
  moe::PolicyOptions policy;
  std::string profile_path;  // routing trace whose counts become policy.profile; empty: none
  moe::Prefetch prefetch = moe::Prefetch::kOn;
  moe::ReaderKind reader = moe::ReaderKind::kAuto;
  // Receives notes for people about faults that were handled, also while the model is served.
  // Called on several threads. May be empty.
  std::function<void(absl::string_view line)> note;
  std::string trace_path;  // routing trace (moe/replay/trace.h) to write; empty: none
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_EXPERT_OPTIONS_H_
