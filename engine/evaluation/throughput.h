// MeasureThroughput: how fast a model's forward passes are, without engine, sampler or tokenizer
// around them.
//
//   ASSIGN_OR_RETURN(const Throughput decode,
//                    MeasureThroughput(bundle->model.get(),
//                                      {.phase = moe::Phase::kDecode, .tokens = 128, .sequences =
//                                      8},
//                                      {.cost = cost}));
//   const double tokens_per_s = decode.tokens / decode.seconds[0];
#ifndef TIDEPOOL_ENGINE_EVALUATION_THROUGHPUT_H_
#define TIDEPOOL_ENGINE_EVALUATION_THROUGHPUT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/kv_spec.h"
#include "engine/model/model.h"
#include "kernels/base/clock.h"
#include "moe/offload_stats.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::engine {

struct ThroughputTest {
  // kPrefill: all tokens of a prompt, in chunks; logits of the last. kDecode: one token of each
  // sequence per pass, with logits.
  moe::Phase phase = moe::Phase::kPrefill;
  int64_t tokens = 512;  // of each sequence, from an empty KV
  int sequences = 1;
};

// What one forward pass reads of the weights, in bytes as they lie in memory.
struct ReadCost {
  int64_t dense = 0;       // every pass
  int64_t per_expert = 0;  // for each (layer, expert) that the pass computes
  int64_t per_row = 0;     // for each row: its embedding
};

// What the KV of a test takes while it runs.
int64_t KvBytes(const std::vector<KvSpec>& specs, const ThroughputTest& test);

struct ThroughputOptions {
  int repetitions = 5;
  int64_t chunk_rows = 512;  // of one pass of a prefill
  ReadCost cost;
  const base::Clock* clock = &base::Clock::Real();
  // Called before each repetition, with its number from 0. May be empty.
  std::function<void(int repetition)> progress;
};

struct Throughput {
  int64_t tokens = 0;           // of one repetition, all sequences together
  std::vector<double> seconds;  // of each repetition
  // The least that one repetition has to read: the weights that options.cost says, once a pass, and
  // each sequence's KV once a pass.
  double bytes = 0;
  ExpertCounts experts;  // of the last repetition
  // Of all repetitions, without the warm-up; of models whose experts do not all lie in memory.
  std::optional<moe::OffloadStats> offload;
};

// Runs a warm-up (one chunk, or 8 passes of decoding), then the repetitions, each from an empty KV.
// The tokens are pseudo-random ids, others in each repetition and the same in each call, as
// tests/bench/llama_peer.py has them. Errors are Model::Forward's. Thread contract: as
// Model::Forward. Requires: at least one token, sequence, repetition and row of a chunk.
absl::StatusOr<Throughput> MeasureThroughput(Model* model, const ThroughputTest& test,
                                             const ThroughputOptions& options);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_EVALUATION_THROUGHPUT_H_
