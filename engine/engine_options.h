// EngineOptions: the limits of an Engine.
#ifndef TIDEPOOL_ENGINE_ENGINE_OPTIONS_H_
#define TIDEPOOL_ENGINE_ENGINE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/model/model.h"

namespace tidepool::engine {

struct EngineOptions {
  int64_t context_length = 0;        // tokens of one sequence, prompt and output
  size_t kv_memory_bytes = 1 << 30;  // size of the KV arena
  int64_t max_sequences = 64;        // in one step
  int64_t max_queued = 1024;         // waiting sequences in addition to max_sequences
  BatchLimits limits;                // rows per step
  int64_t prefill_chunk = 512;       // maximum prompt rows of one sequence per step
  // The depth in a prompt, in tokens, at which a row's attention costs as much as the rest of the
  // row (AttentionDepth). Chunks shrink with the depth, so that steps take about equally long. 0:
  // equal chunks.
  int64_t attention_depth = 0;
  int64_t max_concurrent_prefills = 4;  // incompletely computed prompts that hold KV
  // Replaces prefill_chunk while some of the model's experts are not in memory. A larger chunk is
  // better then, because a step reads each expert once, however many rows need it. 0: use
  // prefill_chunk.
  int64_t offload_prefill_chunk = 0;
  std::string cache_seed;  // model digest and KV type; KV is shared only if it matches
  // File for KV blocks that memory has no room for, which also survives the process, and its
  // maximum size in bytes. Empty path: none.
  std::string kv_disk_path;
  int64_t kv_disk_bytes = 0;

  // INVALID_ARGUMENT names the field, its value and the accepted range.
  absl::Status Validate() const;
};

// Number of rows of logits per step for log-probabilities of prompts, besides one row per sequence:
// as many as fit into 32 MiB, at most 128.
int64_t PromptLogitRows(int64_t vocab_size);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_OPTIONS_H_
