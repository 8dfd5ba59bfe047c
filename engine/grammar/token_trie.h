// TokenTrie: the bytes of a vocabulary's tokens as tries, so that one walk finds all tokens that
// may come next.
//
// Tokens that consist only of ordinary characters of JSON strings are divided into slices, by their
// number of characters. If every text of a slice may come next, as inside of most strings, the
// slice is not walked (an idea of llguidance).
#ifndef TIDEPOOL_ENGINE_GRAMMAR_TOKEN_TRIE_H_
#define TIDEPOOL_ENGINE_GRAMMAR_TOKEN_TRIE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/grammar/token_mask.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine::grammar {

// The maximum number of characters of the tokens of each slice. Longer tokens are in no slice.
inline constexpr std::array<int32_t, 4> kSliceCharacters = {3, 8, 20, 64};

// The first byte of a TokenTerm. It occurs in no UTF-8 text.
inline constexpr uint8_t kTokenByte = 0xFF;
inline constexpr int kTokenTermBytes = 5;
// Returns the bytes that represent a token term of a grammar: kTokenByte, and the id in four bytes
// with 7 bits each.
std::string TokenTerm(int32_t id);

// Thread-safe: immutable.
class TokenTrie {
 public:
  // A trie in depth-first order. Node 0 is the root.
  struct Trie {
    std::vector<uint8_t> bytes;
    std::vector<int16_t> depths;
    std::vector<int32_t> ends;  // the first node that is not below this one
    // index of the node's first token in `tokens`; the next node's entry is the end
    std::vector<int32_t> first_token;
    std::vector<int32_t> tokens;
    int32_t max_depth = 0;
  };
  struct Slice {
    Trie trie;
    TokenMask tokens;  // empty: no token is in this slice
  };

  // Control tokens have no text. Stop tokens end a generation.
  explicit TokenTrie(const Tokenizer& tokenizer);
  // `texts` are the bytes of the tokens, by id. A token without text has no bytes.
  TokenTrie(const std::vector<std::string>& texts, absl::Span<const int32_t> stop_ids);

  int32_t vocab_size() const { return vocab_size_; }
  int32_t longest() const { return longest_; }  // bytes of the longest token
  absl::Span<const int32_t> stop_ids() const { return stop_ids_; }
  bool IsStop(int32_t id) const;
  // Returns "" for a token without text.
  absl::string_view text(int32_t id) const {
    return absl::string_view(bytes_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }
  const Trie& others() const { return others_; }  // the tokens that are in no slice
  const std::array<Slice, kSliceCharacters.size()>& slices() const { return slices_; }

 private:
  void Build(const std::vector<std::string>& texts);

  int32_t vocab_size_ = 0;
  int32_t longest_ = 0;
  std::vector<int32_t> stop_ids_;
  std::string bytes_;
  std::vector<size_t> offsets_;
  Trie others_;
  std::array<Slice, kSliceCharacters.size()> slices_;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_TOKEN_TRIE_H_
