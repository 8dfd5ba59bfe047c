// DRY ("don't repeat yourself"): a penalty for tokens that would continue a repetition. Source:
// oobabooga/text-generation-webui#5677. The results are those of llama.cpp.
//
// The last tokens of the prompt and the output are the text. The text is searched for earlier
// places that end with the same n tokens as the whole text. The token after such a place would
// continue a repetition of n tokens. If n >= allowed_length, this token's logit is lowered by
// multiplier * base^(n - allowed_length). A repetition never contains a sequence breaker.
#ifndef TIDEPOOL_ENGINE_SAMPLING_DRY_H_
#define TIDEPOOL_ENGINE_SAMPLING_DRY_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "engine/sampling/dry_breakers.h"
#include "engine/sampling/request.h"

namespace tidepool::engine {

// Finds the last sequence breaker. Plain data. The state depends only on the tokens added so far.
class DryHistory {
 public:
  explicit DryHistory(std::shared_ptr<const DryBreakers> breakers)
      : breakers_(std::move(breakers)) {}

  // Adds a token of the prompt or the output. Requires: the vocabulary has it.
  void Add(int32_t token);

  int64_t size() const { return size_; }
  const DryBreakers& breakers() const { return *breakers_; }
  // Returns the number of tokens after the last breaker, among the last `window` tokens. If no
  // breaker begins in these tokens, returns `window`.
  int64_t SinceBreaker(int64_t window) const;

 private:
  // A breaker whose first tokens have been found, and the position in its trie.
  struct Match {
    int64_t begin;
    int32_t node;
  };

  std::shared_ptr<const DryBreakers> breakers_;
  std::vector<Match> matches_;
  int64_t size_ = 0;
  // The breaker that began last. If several began with the same token, the longest of these.
  int64_t begin_ = -1;
  int64_t end_ = -1;  // its last token
};

// Thread-compatible. Keeps scratch memory for each token of the vocabulary and for each position of
// the context.
class DryPenalty {
 public:
  // Lowers the logits of the tokens that would continue a repetition. Takes O(tokens) time.
  // Requires: `history` has the tokens, and DRY is on.
  void Apply(const SamplingParams& params, const DryHistory& history,
             absl::Span<const int32_t> tokens, absl::Span<float> logits);

 private:
  void FindRepetitions(absl::Span<const int32_t> tokens, int64_t allowed, int64_t limit);
  void Note(int32_t next_token, int64_t length);

  std::vector<int32_t> lengths_;  // by distance from the end: number of equal tokens
  std::vector<int32_t> longest_;  // by token: the longest repetition, plus 1; 0: none
  std::vector<int32_t> noted_;    // tokens whose entry in longest_ is not 0
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_DRY_H_
