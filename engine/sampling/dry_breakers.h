// DryBreakers: the sequence breakers of DRY, as sequences of tokens.
//
// As in llama.cpp and KoboldCpp, there are two kinds of sequences. One is a single token that
// contains a breaker. The other is a token that ends with the beginning of a breaker, followed by
// the tokens of the breaker's rest (at most 20 tokens). A breaker that the text's tokens split in
// any other way is not found.
#ifndef TIDEPOOL_ENGINE_SAMPLING_DRY_BREAKERS_H_
#define TIDEPOOL_ENGINE_SAMPLING_DRY_BREAKERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/grammar/token_mask.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/base/recent_cache.h"

namespace tidepool::engine {

// Immutable. The rests of the breakers are tries of tokens. A node is a number, and kNone means no
// node.
class DryBreakers {
 public:
  static constexpr int32_t kNone = -1;

  // Requires: no text is empty. Returns the errors of Tokenizer::Encode.
  static absl::StatusOr<std::shared_ptr<const DryBreakers>> Create(
      absl::Span<const std::string> texts, const Tokenizer& tokenizer);

  // Returns whether the token alone is a sequence. Requires: the token is in the vocabulary.
  bool IsWhole(int32_t token) const { return whole_.Test(token); }
  // Returns the roots of the rests that may follow the token.
  absl::Span<const int32_t> Rests(int32_t token) const;
  // Returns the node after `node` and `token`.
  int32_t Next(int32_t node, int32_t token) const;
  // Returns whether a sequence ends at the node.
  bool IsEnd(int32_t node) const { return ends_[node]; }

 private:
  DryBreakers() = default;
  absl::Status AddToken(absl::Span<const std::string> sorted, int32_t token,
                        const Tokenizer& tokenizer);
  absl::StatusOr<int32_t> RestsOf(absl::Span<const std::string> breakers, size_t length,
                                  const Tokenizer& tokenizer);
  void AddRest(int32_t root, absl::Span<const int32_t> tokens);

  grammar::TokenMask whole_;
  grammar::TokenMask begins_;  // tokens with rests
  absl::flat_hash_map<int32_t, std::vector<int32_t>> rests_;
  absl::flat_hash_map<std::pair<int32_t, int32_t>, int32_t> next_;
  std::vector<bool> ends_;                           // by node
  absl::flat_hash_map<std::string, int32_t> roots_;  // by the beginnings of breakers
};

// Thread-safe. Keeps the 8 DryBreakers that were used last, because creating one reads the whole
// vocabulary. The tokenizer must outlive the cache.
class DryBreakerCache {
 public:
  explicit DryBreakerCache(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  absl::StatusOr<std::shared_ptr<const DryBreakers>> Get(const std::vector<std::string>& texts);

 private:
  const Tokenizer* const tokenizer_;
  base::RecentCache<std::vector<std::string>, DryBreakers, 8> breakers_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_DRY_BREAKERS_H_
