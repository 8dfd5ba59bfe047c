// PickWorker: chooses the worker for a request. A pure function of the front's state.
#ifndef TIDEPOOL_SERVICE_FRONT_PICK_WORKER_H_
#define TIDEPOOL_SERVICE_FRONT_PICK_WORKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::service {

enum class WorkerHealth : uint8_t {
  kDown,      // no stream of states, or no state since an error
  kSuspect,   // states stopped arriving, a call failed, or its engine is stuck
  kDraining,  // accepts no new requests
  kServing,
};

struct WorkerView {
  std::string name;
  WorkerHealth health = WorkerHealth::kDown;
  std::string model;
  std::string model_digest;  // a ModelIdentity, as in PickRequest
  std::string numerics_id;
  int64_t sequences = 0;  // running and waiting
  // Reported by the worker, plus what was sent since.
  int64_t queued_prompt_tokens = 0;
  double prefill_tokens_per_second = 0;  // 0: unknown
  // The last blocks of cached prefixes. Shared, because views are copied.
  std::shared_ptr<const std::unordered_set<uint64_t>> prefixes;
  int64_t session_tokens = 0;  // KV tokens that the last turn of the request's session left there
};

struct PickRequest {
  std::string model_digest;
  int64_t prompt_tokens = 0;
  int64_t block_tokens = 32;
  std::vector<uint64_t> block_hashes;    // of the prompt's full blocks
  std::string affinity;                  // session or prefix; empty: none
  std::string preferred_numerics_id;     // of an earlier attempt; empty: none
  std::vector<std::string> avoid;        // names of workers that failed this request
  std::vector<std::string> spare;        // names of workers that another request may crash
  std::vector<std::string> prefer = {};  // names of preferred workers; empty: any
  bool fewest = false;  // choose the worker with the fewest sequences instead of the least time
};

// Tokens of the prompt that are probably in the worker's cache.
int64_t CachedTokens(const WorkerView& worker, const PickRequest& request);

// Returns an index into `workers`, or nullopt if no worker can take the request. It compares, in
// this order:
// 1. serving workers before suspect ones,
// 2. workers outside `spare`, then those in `prefer`, then those outside `avoid`,
// 3. workers with the preferred numerics_id,
// 4. with `fewest`, fewer sequences.
// Among equal workers, the least time to compute the prompt wins (queued and uncached tokens
// divided by the prefill rate). Workers within 20 % or 10 ms of the least time count as equal. Of
// these, the first in the rendezvous order of `affinity` wins, unless it is overloaded: it has more
// than 1.25 times the mean number of sequences, and more than one above the mean. A worker without
// a measured rate gets the mean of the others.
std::optional<size_t> PickWorker(absl::Span<const WorkerView> workers, const PickRequest& request);

// A hash of (key, name) that is the same in every front.
uint64_t RendezvousHash(absl::string_view key, absl::string_view name);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_PICK_WORKER_H_
