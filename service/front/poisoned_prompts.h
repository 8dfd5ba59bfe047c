// PoisonedPrompts: the prompts that were convicted of crashing workers (crash_evidence.h). A
// convicted prompt is refused for a while if the principal that sent it sends it again. Other
// principals may send it.
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
  // Hash of everything that makes up the prompt: the model, the request's input and the session's
  // log. Sampling parameters are not part of it.
  uint64_t content = 0;
  // Hash of the content and of the principal that sent it. All callers without authentication count
  // as one principal, whose name is empty.
  uint64_t sent = 0;
};
PromptId PromptIdOf(absl::string_view principal, absl::string_view model_digest,
                    const v1::GenerateRequest& request,
                    absl::Span<const int32_t> session_token_ids);

// Use it on the loop only. Prompts are identified by PromptId::sent.
class PoisonedPrompts {
 public:
  static constexpr absl::Duration kRefusedFor = absl::Minutes(10);
  static constexpr size_t kMax = 1024;  // if there are more, the oldest one is accepted again

  // `clock` must outlive this object.
  explicit PoisonedPrompts(const base::Clock* clock) : clock_(clock) {}

  void Refuse(uint64_t digest);
  // Returns INTERNAL while the prompt is refused. The message says for how long.
  absl::Status Check(uint64_t digest);
  bool Refuses(uint64_t digest);

  // Returns how many requests Check has refused.
  int64_t refused_total() const { return refused_total_; }

 private:
  void DropExpired();

  const base::Clock* clock_;
  absl::flat_hash_map<uint64_t, absl::Duration> until_;  // on the monotonic clock
  std::deque<uint64_t> order_;                           // in the order in which they expire
  int64_t refused_total_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_POISONED_PROMPTS_H_
