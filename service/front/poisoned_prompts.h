// PoisonedPrompts: prompts that were convicted of crashing workers (crash_evidence.h). They are
// refused for a while to the principal that sent them, and to nobody else.
#ifndef TIDEPOOL_SERVICE_FRONT_POISONED_PROMPTS_H_
#define TIDEPOOL_SERVICE_FRONT_POISONED_PROMPTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/base/clock.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

struct PromptId {
  // Of all that the prompt is made of, however it is sampled: the model, the request's input, and
  // what its session holds.
  uint64_t content = 0;
  // Of the content and the principal that sent it. Callers without authentication are one
  // principal, whose name is empty.
  uint64_t sent = 0;
};
PromptId PromptIdOf(absl::string_view principal, absl::string_view model_digest,
                    const v1::GenerateRequest& request,
                    absl::Span<const int32_t> session_token_ids);

// Loop only. Knows prompts by PromptId::sent.
class PoisonedPrompts {
 public:
  static constexpr absl::Duration kRefusedFor = absl::Minutes(10);
  static constexpr size_t kMax = 1024;  // beyond, the oldest is let in again

  // `clock` outlives it.
  explicit PoisonedPrompts(const base::Clock* clock) : clock_(clock) {}

  void Refuse(uint64_t digest);
  // INTERNAL while the prompt is refused, with how long that lasts.
  absl::Status Check(uint64_t digest);
  bool Refuses(uint64_t digest);

  // Refusals that Check gave.
  int64_t refused_total() const { return refused_total_; }

 private:
  void DropExpired();

  const base::Clock* clock_;
  absl::flat_hash_map<uint64_t, absl::Duration> until_;  // of the monotonic clock
  std::deque<uint64_t> order_;                           // as they expire
  int64_t refused_total_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_POISONED_PROMPTS_H_
