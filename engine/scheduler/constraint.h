// The constraint of a sequence: its grammar's state, and the tokens that it allows next.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_CONSTRAINT_H_
#define TIDEPOOL_ENGINE_SCHEDULER_CONSTRAINT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/token_mask.h"
#include "engine/sampling/request.h"

namespace tidepool::engine {

// Engine thread only, except that ComputeMask may run in another thread while the engine's thread
// does not use the object.
class SequenceConstraint {
 public:
  // Returns null if the request has no constraint. Replays the output tokens of earlier attempts.
  // Returns INVALID_ARGUMENT if the constraint does not allow them, or cannot be combined with the
  // request's other fields.
  static absl::StatusOr<std::unique_ptr<SequenceConstraint>> Create(
      const GenerationRequest& request);

  // Computes mask(): the tokens that may be sampled next. Tokens that end the response may be
  // sampled if nothing else may, although `forbidden` has them.
  void ComputeMask(absl::Span<const int32_t> forbidden);
  const grammar::TokenMask& mask() const { return mask_; }

  // Adds a sampled token. Requires: the mask has it.
  void Accept(int32_t token);
  // Returns whether the last token ended the response.
  bool ended() const { return ended_; }

 private:
  explicit SequenceConstraint(const GenerationRequest& request);

  grammar::Matcher matcher_;
  grammar::TokenMask mask_;
  const std::shared_ptr<const grammar::TokenTrie> trie_;
  bool ended_ = false;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_CONSTRAINT_H_
