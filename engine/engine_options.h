// EngineOptions: the settings and limits of an Engine.
#ifndef TIDEPOOL_ENGINE_ENGINE_OPTIONS_H_
#define TIDEPOOL_ENGINE_ENGINE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/model/model.h"

namespace tidepool::engine {

struct EngineOptions {
  int64_t context_length = 0;        // maximum tokens of one sequence, prompt and output together
  size_t kv_memory_bytes = 1 << 30;  // size of the memory for KV
  int64_t max_sequences = 64;        // maximum sequences in one step
  int64_t max_queued = 1024;         // maximum waiting sequences, in addition to max_sequences
  BatchLimits limits;                // maximum rows per step
  int64_t prefill_chunk = 512;       // maximum prompt rows of one sequence per step
  // The depth in a prompt, in tokens, at which the attention of a row costs as much as the rest of
  // the row (AttentionDepth). Deeper in a prompt, chunks are smaller, so that all steps take about
  // the same time. 0: all chunks have the same size.
  int64_t attention_depth = 0;
  // maximum prompts that hold KV and are not completely computed
  int64_t max_concurrent_prefills = 4;
  // Replaces prefill_chunk while some of the model's experts are not in memory. A larger chunk is
  // then better, because a step reads each expert only once for all rows that need it. 0: use
  // prefill_chunk.
  int64_t offload_prefill_chunk = 0;
  // model digest and KV type; KV is shared only between engines with the same seed
  std::string cache_seed;
  // Path and maximum size of a file for KV blocks that do not fit into memory. The blocks in it
  // survive the process. An empty path means no file.
  std::string kv_disk_path;
  int64_t kv_disk_bytes = 0;
  // How long a step waits after its pass for the masks of constrained sequences. Most masks take
  // much less time than a pass. A sequence whose mask takes longer gets its token in a later step.
  // After its sampling, a step spends at most a third of this time on further tokens that the
  // constraints force, which need no pass. It computes a mask for this only if the sequence's last
  // mask took at most a tenth of this time.
  absl::Duration mask_patience = absl::Milliseconds(1);

  // Returns INVALID_ARGUMENT with the field, its value and the accepted range.
  absl::Status Validate() const;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_OPTIONS_H_
