// MeasureThroughput: measures the speed of a model's forward passes. It uses no engine, sampler or
// tokenizer.
//
//   ASSIGN_OR_RETURN(const Throughput decode,
//                    MeasureThroughput(
//                        bundle->model.get(),
//                        {.phase = moe::Phase::kDecode, .tokens = 128, .sequences = 8},
//                        {.cost = cost}));
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
  // With kPrefill, all tokens of a prompt are computed in chunks, with logits only for the last
  // token. With kDecode, each pass computes one token of each sequence, with logits.
  moe::Phase phase = moe::Phase::kPrefill;
  int64_t tokens = 512;  // tokens of each sequence, which begins with an empty KV
  int sequences = 1;
};

// The bytes of weights in memory that one forward pass reads.
struct ReadCost {
  int64_t dense = 0;       // bytes that every pass reads
  int64_t per_expert = 0;  // bytes for each (layer, expert) pair that the pass computes
  int64_t per_row = 0;     // bytes of each row's embedding
};

// The bytes of KV that a test needs.
int64_t KvBytes(const std::vector<KvSpec>& specs, const ThroughputTest& test);

struct ThroughputOptions {
  int repetitions = 5;
  int64_t chunk_rows = 512;  // maximum rows of a prefill pass
  ReadCost cost;
  const base::Clock* clock = &base::Clock::Real();
  // Called before each repetition with the number of the repetition, from 0. May be empty.
  std::function<void(int repetition)> progress;
};

struct Throughput {
  int64_t tokens = 0;           // number of tokens in one repetition, over all sequences
  std::vector<double> seconds;  // one for each repetition
  // The minimum number of bytes that one repetition reads: the weights according to options.cost,
  // and the KV of each sequence, once per pass.
  double bytes = 0;
  ExpertCounts experts;  // expert counts of the last repetition
  // The total of all repetitions, without the warm-up. Set only if not all experts are in memory.
  std::optional<moe::OffloadStats> offload;
};

// Runs a warm-up (one chunk, or 8 passes of decoding), and then the repetitions. The warm-up and
// each repetition begin with an empty KV. The tokens are pseudo-random ids, other ones in each
// repetition. A second call uses the same ids again, and so does tests/bench/llama_peer.py. Returns
// the errors of Model::Forward, and has its thread contract. Requires: at least one token,
// sequence, repetition, and row per chunk.
absl::StatusOr<Throughput> MeasureThroughput(Model* model, const ThroughputTest& test,
                                             const ThroughputOptions& options);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_EVALUATION_THROUGHPUT_H_
