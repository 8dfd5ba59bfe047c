// PickWorker: which worker a request goes to. A pure function of what the front knows.
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
  kDown,      // no stream of states, or none came since an error
  kSuspect,   // the states stopped coming, a call failed, or its engine stands still
  kDraining,  // takes nothing new
  kServing,
};

struct WorkerView {
  std::string name;
  WorkerHealth health = WorkerHealth::kDown;
  std::string model;
  std::string model_digest;  // ModelIdentity, as in PickRequest
  std::string numerics_id;
  int64_t sequences = 0;                 // running and waiting
  int64_t queued_prompt_tokens = 0;      // as the worker told, and what was sent there since
  double prefill_tokens_per_second = 0;  // 0: not known
  // Last blocks of cached prefixes; shared, for views are copied.
  std::shared_ptr<const std::unordered_set<uint64_t>> prefixes;
  int64_t session_tokens = 0;  // of the request's session: KV that its last turn left there
};

struct PickRequest {
  std::string model_digest;
  int64_t prompt_tokens = 0;
  int64_t block_tokens = 32;
  std::vector<uint64_t> block_hashes;    // of the prompt's full blocks
  std::string affinity;                  // session or prefix; empty: none
  std::string preferred_numerics_id;     // of an earlier attempt; empty: none
  std::vector<std::string> avoid;        // names of workers that failed this request
  std::vector<std::string> spare;        // and of those that another one may be about to crash
  std::vector<std::string> prefer = {};  // names of those that it is meant for; empty: any
  bool fewest = false;                   // the fewest sequences win over the least time
};

// Tokens of the prompt that `worker` has in its cache, as far as is known.
int64_t CachedTokens(const WorkerView& worker, const PickRequest& request);

// Index into `workers`; empty: none can take it. Serving workers come before suspect ones, those
// not in `spare` before those that are, `prefer` before others, those not in `avoid` before those
// that are, an equal numerics_id before others, and with `fewest` those with fewer sequences. Among
// equals the least time until the prompt is computed wins (queued and uncached tokens over the
// prefill rate); of those within 20 % or 10 ms of it the one first in the rendezvous order of
// `affinity`, unless it carries more than 1.25 x the mean number of sequences, and more than one
// above it. Where no rate was measured yet, the mean of the others' counts.
std::optional<size_t> PickWorker(absl::Span<const WorkerView> workers, const PickRequest& request);

// A number for (key, name) that every front draws alike.
uint64_t RendezvousHash(absl::string_view key, absl::string_view name);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_PICK_WORKER_H_
