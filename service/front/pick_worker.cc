#include "service/front/pick_worker.h"

#include <algorithm>
#include <tuple>

#include "absl/algorithm/container.h"
#include "service/base/model_identity.h"

namespace tidepool::service {
namespace {

// Used if no worker has a measured rate. The value of this constant does not matter, because then
// only the numbers of tokens are compared.
constexpr double kUnknownRate = 1000;
// A running sequence slows down the prefill of other sequences. The effect is about the same as
// this number of prompt tokens.
constexpr double kSequenceTokens = 16;
constexpr double kTie = 1.2;
// Measured rates are inaccurate if prompts are short. So smaller differences of time are ignored.
constexpr double kNoiseSeconds = 0.01;
constexpr double kOverload = 1.25;

// Returns the rate that is used for a worker without a measured rate: the mean of the others.
double ExpectedRate(absl::Span<const WorkerView> workers, const std::vector<size_t>& candidates) {
  double sum = 0;
  int measured = 0;
  for (const size_t i : candidates) {
    if (workers[i].prefill_tokens_per_second <= 0) continue;
    sum += workers[i].prefill_tokens_per_second;
    ++measured;
  }
  return measured == 0 ? kUnknownRate : sum / measured;
}

double Seconds(const WorkerView& worker, const PickRequest& request, double expected_rate) {
  const double rate =
      worker.prefill_tokens_per_second > 0 ? worker.prefill_tokens_per_second : expected_rate;
  const double uncached = request.prompt_tokens - CachedTokens(worker, request);
  return (worker.queued_prompt_tokens + kSequenceTokens * worker.sequences + uncached) / rate;
}

}  // namespace

uint64_t RendezvousHash(absl::string_view key, absl::string_view name) {
  // FNV-1a over both strings. Then a finaliser spreads the last bytes over all bits.
  uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](absl::string_view bytes) {
    for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    hash = (hash ^ 0xff) * 0x100000001b3;
  };
  mix(key);
  mix(name);
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53;
  return hash ^ (hash >> 33);
}

int64_t CachedTokens(const WorkerView& worker, const PickRequest& request) {
  int64_t cached = worker.session_tokens / request.block_tokens * request.block_tokens;
  const size_t full_blocks = worker.prefixes == nullptr ? 0 : request.block_hashes.size();
  for (size_t blocks = full_blocks; blocks > 0; --blocks) {
    if (worker.prefixes->contains(request.block_hashes[blocks - 1])) {
      cached = std::max<int64_t>(cached, blocks * request.block_tokens);
      break;
    }
  }
  return std::min(cached, request.prompt_tokens);
}

std::optional<size_t> PickWorker(absl::Span<const WorkerView> workers, const PickRequest& request) {
  // A higher value is better. Only the workers with the best value are compared by time.
  using Class = std::tuple<bool, bool, bool, bool, bool, bool, int64_t>;
  std::optional<Class> best_class;
  std::vector<size_t> candidates;
  for (size_t i = 0; i < workers.size(); ++i) {
    const WorkerView& worker = workers[i];
    if (!SameModel(worker.model_digest, request.model_digest)) continue;
    if (worker.health != WorkerHealth::kServing && worker.health != WorkerHealth::kSuspect) {
      continue;
    }
    const bool understands = worker.understands >= request.needs;
    if (request.strictly && !understands) continue;
    const Class own = {understands,
                       worker.health == WorkerHealth::kServing,
                       !absl::c_linear_search(request.spare, worker.name),
                       absl::c_linear_search(request.prefer, worker.name),
                       !absl::c_linear_search(request.avoid, worker.name),
                       request.preferred_numerics_id.empty() ||
                           worker.numerics_id == request.preferred_numerics_id,
                       request.fewest ? -worker.sequences : 0};
    if (best_class.has_value() && own < *best_class) continue;
    if (!best_class.has_value() || own > *best_class) candidates.clear();
    best_class = own;
    candidates.push_back(i);
  }
  if (candidates.empty()) return std::nullopt;

  const double expected_rate = ExpectedRate(workers, candidates);
  double least = Seconds(workers[candidates[0]], request, expected_rate);
  double sequences = 0;
  size_t fastest = candidates[0];
  for (const size_t i : candidates) {
    sequences += workers[i].sequences;
    const double seconds = Seconds(workers[i], request, expected_rate);
    if (seconds < least) least = seconds, fastest = i;
  }
  if (request.affinity.empty()) return fastest;
  const double mean = sequences / candidates.size();
  const double tie = std::max(least * kTie, least + kNoiseSeconds);
  std::optional<size_t> home;
  uint64_t home_hash = 0;
  for (const size_t i : candidates) {
    if (Seconds(workers[i], request, expected_rate) > tie) continue;
    // One sequence more than the mean is not an overload, because small numbers change quickly.
    if (workers[i].sequences > std::max(kOverload * mean, mean + 1)) continue;
    const uint64_t hash = RendezvousHash(request.affinity, workers[i].name);
    if (home.has_value() && hash <= home_hash) continue;
    home = i;
    home_hash = hash;
  }
  return home.value_or(fastest);
}

}  // namespace tidepool::service
