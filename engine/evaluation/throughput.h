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
  // kPrefill: all tokens of a prompt, in chunks, with logits of the last token. kDecode: one token
  // of each sequence per pass, with logits.
  moe::Phase phase = moe::Phase::kPrefill;
  int64_t tokens = 512;  // per sequence, from an empty KV
  int sequences = 1;
};

// Bytes of weights in memory that one forward pass reads.
struct ReadCost {
  int64_t dense = 0;       // in every pass
  int64_t per_expert = 0;  // for each (layer, expert) that the pass computes
  int64_t per_row = 0;     // for each row: its embedding
};

// KV bytes of a running test.
int64_t KvBytes(const std::vector<KvSpec>& specs, const ThroughputTest& test);

struct ThroughputOptions {
  int repetitions = 5;
  int64_t chunk_rows = 512;  // rows per prefill pass
  ReadCost cost;
  const base::Clock* clock = &base::Clock::Real();
  // Called before each repetition with its number, from 0. May be empty.
  std::function<void(int repetition)> progress;
};

struct Throughput {
  int64_t tokens = 0;           // of one repetition, over all sequences
  std::vector<double> seconds;  // one per repetition
  // The minimum bytes that one repetition reads: the weights by options.cost, and each sequence's
  // KV, once per pass.
  double bytes = 0;
  ExpertCounts experts;  // of the last repetition
  // Total of all repetitions without the warm-up. Set if not all experts are in memory.
  std::optional<moe::OffloadStats> offload;
};

// Runs a warm-up (one chunk, or 8 passes of decoding), then the repetitions, each from an empty KV.
// The tokens are pseudo-random ids, different in each repetition and the same in each call, as in
// tests/bench/llama_peer.py. Errors are the ones of Model::Forward. Same thread contract as
// Model::Forward. Requires: at least one token, sequence, repetition and row of a chunk.
absl::StatusOr<Throughput> MeasureThroughput(Model* model, const ThroughputTest& test,
                                             const ThroughputOptions& options);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_EVALUATION_THROUGHPUT_H_
