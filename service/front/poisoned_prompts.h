// PoisonedPrompts: prompts that were convicted of crashing workers (crash_evidence.h). For a while
// they are refused to the principal that sent them, but not to others.
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
  // Hash of everything the prompt consists of: the model, the request's input, and the session's
  // log. Sampling parameters are not included.
  uint64_t content = 0;
  // Hash of the content and of the principal that sent it. All callers without authentication are
  // one principal with an empty name.
  uint64_t sent = 0;
};
PromptId PromptIdOf(absl::string_view principal, absl::string_view model_digest,
                    const v1::GenerateRequest& request,
                    absl::Span<const int32_t> session_token_ids);

// Loop only. Identifies prompts by PromptId::sent.
class PoisonedPrompts {
 public:
  static constexpr absl::Duration kRefusedFor = absl::Minutes(10);
  static constexpr size_t kMax = 1024;  // beyond this, the oldest is accepted again

  // `clock` outlives this object.
  explicit PoisonedPrompts(const base::Clock* clock) : clock_(clock) {}

  void Refuse(uint64_t digest);
  // INTERNAL while the prompt is refused. The message says for how long.
  absl::Status Check(uint64_t digest);
  bool Refuses(uint64_t digest);

  // Number of requests that Check refused.
  int64_t refused_total() const { return refused_total_; }

 private:
  void DropExpired();

  const base::Clock* clock_;
  absl::flat_hash_map<uint64_t, absl::Duration> until_;  // on the monotonic clock
  std::deque<uint64_t> order_;                           // in the order of expiry
  int64_t refused_total_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_POISONED_PROMPTS_H_
