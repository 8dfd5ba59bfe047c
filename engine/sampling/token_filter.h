// TokenFilter: the tokens that allowed_token_ids and bad_words permit.
#ifndef TIDEPOOL_ENGINE_SAMPLING_TOKEN_FILTER_H_
#define TIDEPOOL_ENGINE_SAMPLING_TOKEN_FILTER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/grammar/token_mask.h"
#include "engine/sampling/request.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine {

// Sets the logits of all tokens that are not in `allowed` to -infinity.
void KeepOnly(const grammar::TokenMask& allowed, absl::Span<float> logits);

// Returns the logits of the tokens of `allowed`, in the order of their ids. They are in `memory`,
// which only grows.
absl::Span<const float> Gather(const grammar::TokenMask& allowed, absl::Span<const float> logits,
                               std::vector<float>* memory);

// Immutable.
class TokenFilter {
 public:
  // Each bad word is encoded as it is and with one space before it, because most vocabularies have
  // other tokens for a word inside of a text. INVALID_ARGUMENT if a bad word has no tokens.
  static absl::StatusOr<TokenFilter> Create(const SamplingParams& params,
                                            const Tokenizer& tokenizer, int vocab_size);

  // Sets the logits of tokens that must not follow `outputs`, the output tokens so far, to
  // -infinity. The last token of a bad word must not follow the word's other tokens.
  void Apply(absl::Span<const int32_t> outputs, absl::Span<float> logits) const;

 private:
  TokenFilter() = default;

  grammar::TokenMask allowed_;  // size 0: all tokens
  std::vector<std::vector<int32_t>> bad_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_TOKEN_FILTER_H_
