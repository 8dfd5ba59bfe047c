// ReasoningTracker: counts the tokens of a response's reasoning, and reports when the reasoning
// must end.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_REASONING_TRACKER_H_
#define TIDEPOOL_ENGINE_SCHEDULER_REASONING_TRACKER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/grammar/token_trie.h"
#include "engine/sampling/request.h"

namespace tidepool::engine {

// Engine thread only. The state depends only on the tokens that were added.
class ReasoningTracker {
 public:
  ReasoningTracker(ReasoningLimit limit, std::shared_ptr<const grammar::TokenTrie> trie);

  // Adds an output token.
  void Add(int32_t token);
  // The only token that may come next, if the reasoning is at its limit.
  std::optional<int32_t> forced() const;

 private:
  enum class Phase : uint8_t { kBefore, kInside, kAfter };

  void AddBefore(int32_t token);
  void AddInside(int32_t token);

  const ReasoningLimit limit_;
  const std::shared_ptr<const grammar::TokenTrie> trie_;
  Phase phase_ = Phase::kBefore;
  size_t begun_ = 0;   // number of begin_tokens that were found
  std::string text_;   // the last text, which may be a part of the next marker
  int64_t count_ = 0;  // number of reasoning tokens
  size_t forced_ = 0;  // number of tokens of the end marker that were forced
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_REASONING_TRACKER_H_
