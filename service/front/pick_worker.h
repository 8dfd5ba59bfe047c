// PickWorker: chooses the worker for a request. The choice depends only on its arguments.
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
  kDown,      // the stream of the worker's states (the RPC Watch) is not open
  kSuspect,   // no states arrive, or a call failed, or the engine is stuck
  kDraining,  // accepts no new requests
  kServing,
};

struct WorkerView {
  std::string name;
  WorkerHealth health = WorkerHealth::kDown;
  std::string model;
  std::string model_digest;  // a ModelIdentity, as in PickRequest
  std::string numerics_id;
  int64_t sequences = 0;  // number of sequences, running and waiting
  // The number of prompt tokens that wait on the worker: those that it reported, plus those that
  // were sent to it since then.
  int64_t queued_prompt_tokens = 0;
  double prefill_tokens_per_second = 0;  // 0: not known
  // The cached prefixes. Each is represented by the hash of its last block. Shared, because views
  // are copied.
  std::shared_ptr<const std::unordered_set<uint64_t>> prefixes;
  // number of tokens whose KV the last turn of the request's session left on this worker
  int64_t session_tokens = 0;
  // version of GenerateRequest that the worker supports, as it reported (kUnderstands); 0: unknown
  int32_t understands = 0;
};

struct PickRequest {
  std::string model_digest;
  int64_t prompt_tokens = 0;
  int64_t block_tokens = 32;
  std::vector<uint64_t> block_hashes;  // the hashes of the prompt's full blocks
  std::string affinity;  // id of the session, or hash of the prompt's first block; empty: none
  std::string preferred_numerics_id;     // the numerics_id of an earlier attempt; empty: none
  std::vector<std::string> avoid;        // names of workers that have failed this request
  std::vector<std::string> spare;        // names of workers that another prompt may crash
  std::vector<std::string> prefer = {};  // names of workers to prefer; empty: no preference
  // choose the worker with the fewest sequences, not the one with the least time
  bool fewest = false;
  // A worker whose `understands` is less than this value would probably ignore a field of the
  // request.
  int32_t needs = 0;
  bool strictly = false;  // such a worker cannot take the request
};

// Returns how many tokens of the prompt are probably in the worker's cache.
int64_t CachedTokens(const WorkerView& worker, const PickRequest& request);

// Returns an index into `workers`, or nullopt if no worker can take the request. Workers are
// compared by these criteria, in this order:
// 1. Workers that support all fields of the request are better.
// 2. Serving workers are better than suspect ones.
// 3. Workers outside `spare` are better. Among these, workers in `prefer` are better, and then
//    workers outside `avoid`.
// 4. Workers with the preferred numerics_id are better.
// 5. With `fewest`, workers with fewer sequences are better.
// If several workers are equal in all of these, the time to compute the prompt decides. The time is
// the number of queued and uncached tokens, divided by the prefill rate. A worker without a
// measured rate gets the mean rate of the others. Without `affinity`, the fastest worker is chosen.
//
// With `affinity`, all workers whose time is within 20 % or 10 ms of the least time are candidates.
// Overloaded candidates are left out. A candidate is overloaded if it has more than 1.25 times the
// mean number of sequences, and more than one sequence above the mean. Of the rest, the one with
// the highest RendezvousHash(affinity, name) is chosen. If all are overloaded, the fastest worker
// is chosen.
std::optional<size_t> PickWorker(absl::Span<const WorkerView> workers, const PickRequest& request);

// Returns a hash of (key, name) that is the same in every front.
uint64_t RendezvousHash(absl::string_view key, absl::string_view name);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_PICK_WORKER_H_
