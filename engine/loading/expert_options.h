// ExpertOptions: how a model's experts are kept that may not all fit into memory.
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
  std::string cache_dir;  // of pack files; empty: beside the checkpoint
  int staging = 8;
  moe::PolicyOptions policy;
  std::string profile_path;  // of a routing trace whose counts are policy.profile; empty: none
  moe::Prefetch prefetch = moe::Prefetch::kOn;
  moe::ReaderKind reader = moe::ReaderKind::kAuto;
  // Takes lines for people about trouble that is put right, also while the model is served; called
  // on several threads. May be empty.
  std::function<void(absl::string_view line)> note;
  std::string trace_path;  // of a routing trace (moe/replay/trace.h) to write; empty: none
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_EXPERT_OPTIONS_H_
