// The constraint of a sequence: the state of its grammar and of its limit on reasoning, and the
// tokens that may come next.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_CONSTRAINT_H_
#define TIDEPOOL_ENGINE_SCHEDULER_CONSTRAINT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/token_mask.h"
#include "engine/sampling/request.h"
#include "engine/scheduler/reasoning_tracker.h"

namespace tidepool::engine {

// Engine thread only, except that ComputeMask may run in another thread. From BeginMask until
// computing() is false, the engine's thread may only call allows_all, ready and computing. The
// state depends only on the output tokens.
class SequenceConstraint {
 public:
  // A mask that takes more CPU time than this is slow. Nearly all masks take a tenth of it.
  static constexpr absl::Duration kMaxQuickMask = absl::Milliseconds(2);

  // Returns null if the request has neither a grammar nor a limit on reasoning. Replays the output
  // tokens of earlier attempts. Returns INVALID_ARGUMENT if the grammar does not allow these
  // tokens, or cannot be combined with the request's other fields.
  static absl::StatusOr<std::shared_ptr<SequenceConstraint>> Create(
      const GenerationRequest& request);

  // Returns whether every token may come next.
  bool allows_all() const { return !matcher_.has_value() && !forced().has_value(); }
  // Whether it is known which tokens may come next: all tokens, or those of mask().
  bool ready() const { return allows_all() || mask_state_ == MaskState::kReady; }
  // Whether another thread computes the mask, or will do so.
  bool computing() const { return mask_state_ == MaskState::kComputing; }
  // Call it before another thread calls ComputeMask. Requires: !ready() && !computing().
  void BeginMask() { mask_state_ = MaskState::kComputing; }
  // Computes the mask, without the tokens of `forbidden`. If no other tokens may come next, the
  // mask has tokens that end the response, even forbidden ones.
  void ComputeMask(absl::Span<const int32_t> forbidden);
  // Like ComputeMask, but calls `give_up` repeatedly. If `give_up` returns true, returns false, and
  // the mask must be computed again.
  bool TryComputeMask(absl::Span<const int32_t> forbidden, absl::FunctionRef<bool()> give_up);
  // The CPU time that the latest mask took. The next mask may take as long. Requires: !computing().
  absl::Duration mask_time() const { return mask_time_; }
  bool slow() const { return mask_time_ > kMaxQuickMask; }
  // For a caller of TryComputeMask that gave up: until the mask is computed, it counts as slow.
  void NoteSlow() { mask_time_ = absl::InfiniteDuration(); }
  // Returns the only token that may come next, if there is one. Requires: ready().
  std::optional<int32_t> only() const { return allows_all() ? std::nullopt : mask_.Only(); }
  // The tokens that may be sampled next, or null if all may. Requires: ready().
  const grammar::TokenMask* mask() const { return allows_all() ? nullptr : &mask_; }

  // Adds a sampled token. Requires: ready(), and the mask has it.
  void Accept(int32_t token);
  // Returns whether the last token ended the response.
  bool ended() const { return ended_; }
  // Returns whether nothing but the end of the response can follow.
  bool complete() const { return matcher_.has_value() && matcher_->complete(); }

 private:
  enum class MaskState : uint8_t { kMissing, kComputing, kReady };

  explicit SequenceConstraint(const GenerationRequest& request);

  std::optional<int32_t> forced() const {
    return reasoning_.has_value() ? reasoning_->forced() : std::nullopt;
  }
  bool Add(int32_t token);
  void Restrict(absl::Span<const int32_t> forbidden);

  const std::shared_ptr<const grammar::TokenTrie> trie_;
  std::optional<grammar::Matcher> matcher_;  // unset: no grammar
  std::optional<ReasoningTracker> reasoning_;
  grammar::TokenMask mask_;
  std::atomic<MaskState> mask_state_ = MaskState::kMissing;
  absl::Duration mask_time_;
  bool ended_ = false;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_CONSTRAINT_H_
