// EngineOptions: the limits that an Engine is made with.
#ifndef TIDEPOOL_ENGINE_ENGINE_OPTIONS_H_
#define TIDEPOOL_ENGINE_ENGINE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/model/model.h"

namespace tidepool::engine {

struct EngineOptions {
  int64_t context_length = 0;        // slots of one sequence, prompt and output
  size_t kv_memory_bytes = 1 << 30;  // of the KV arena
  int64_t max_sequences = 64;        // in one step
  int64_t max_queued = 1024;         // waiting beyond those
  BatchLimits limits;                // rows of one step
  int64_t prefill_chunk = 512;       // most prompt rows of one sequence in one step
  // Tokens of context at which a row's attention costs as much as all else of it (AttentionDepth).
  // Deep in a prompt its chunks are smaller by that, and steps no longer. 0: equal chunks.
  int64_t attention_depth = 0;
  int64_t max_concurrent_prefills = 4;  // prompts that hold KV and are computed in part
  // The same while not all of the model's experts have a place in memory: a step reads each that it
  // needs once, however many rows need it. 0: as prefill_chunk.
  int64_t offload_prefill_chunk = 0;
  std::string cache_seed;  // model digest, KV type: what makes KV of equal tokens equal
  // A file of at most so many bytes, for KV that memory has no room for and that is to outlive the
  // process; no path: none.
  std::string kv_disk_path;
  int64_t kv_disk_bytes = 0;

  // INVALID_ARGUMENT names the field, its value and the accepted range.
  absl::Status Validate() const;
};

// Rows of logits that a step has beside one of each sequence, for the log-probabilities of prompts:
// as many as 32 MiB hold, at most 128.
int64_t PromptLogitRows(int64_t vocab_size);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_OPTIONS_H_
