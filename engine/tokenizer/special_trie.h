// SpecialTrie: finds the names of special tokens in a text.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_SPECIAL_TRIE_H_
#define TIDEPOOL_ENGINE_TOKENIZER_SPECIAL_TRIE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace tidepool::engine {

// A set of byte strings, which are the names of tokens. A search finds the leftmost match. If
// several names match at this position, the search finds the longest name. Thread-safe while no
// names are added.
class SpecialTrie {
 public:
  enum class Kind : uint8_t {
    kAnywhere,  // matches in any text
    kGuarded,   // matches only where the caller allows it
  };

  struct Match {
    int32_t id = -1;  // -1 if there is no match
    size_t size = 0;
  };

  // Conditions on the text before and after a token's name.
  struct Edges {
    bool strip_before = false;  // the match includes the white space before it
    bool strip_after = false;   // the match includes the white space after it
    bool whole_word = false;    // there is no match if a word character is beside the name
  };

  // The bytes [begin, end) of a text.
  struct Range {
    size_t begin = 0;
    size_t end = 0;
    bool empty() const { return begin == end; }
  };

  SpecialTrie() : nodes_(1) {}

  // Adds a name. If the name already exists, keeps the existing one. Requires: the name is not
  // empty.
  void Add(absl::string_view name, int32_t id, Kind kind);

  // Returns whether a name may start with this byte.
  bool MayStart(char first) const { return starts_[static_cast<uint8_t>(first)]; }

  // Returns the longest name at the start of `text`. A guarded name only matches if it ends within
  // the first `guarded_size` bytes.
  Match LongestPrefix(absl::string_view text, size_t guarded_size) const;

  // The edges of a token. Change them only while the set is filled.
  Edges& edges(int32_t id) { return edges_[id]; }

  // Returns the range of `text` that the match at byte `at` covers. The range includes the white
  // space that belongs to the match, but no byte before `first`. Returns an empty range if the name
  // is inside a word and the token's edges forbid this.
  Range Widen(absl::string_view text, size_t first, size_t at, Match match) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;  // sorted by byte, in ascending order
    int32_t id = -1;
    Kind kind = Kind::kAnywhere;
  };

  int32_t Child(int32_t node, uint8_t byte) const;  // returns -1 if there is none

  std::vector<Node> nodes_;  // nodes_[0] is the root
  std::array<bool, 256> starts_ = {};
  absl::flat_hash_map<int32_t, Edges> edges_;  // by id; only tokens that have any edges
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_SPECIAL_TRIE_H_
