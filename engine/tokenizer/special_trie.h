// SpecialTrie: finds the names of special tokens in a text.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_SPECIAL_TRIE_H_
#define TIDEPOOL_ENGINE_TOKENIZER_SPECIAL_TRIE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace tidepool::engine {

// A set of byte strings, with a search for the leftmost match, the longest among these. Thread-safe
// once filled.
class SpecialTrie {
 public:
  enum class Kind : uint8_t {
    kAnywhere,  // matches in any text
    kGuarded,   // matches only where the caller allows it
  };

  struct Match {
    int32_t id = -1;  // -1: no match
    size_t size = 0;
  };

  SpecialTrie() : nodes_(1) {}

  // If two names are equal, the first stays. Requires: the name is not empty.
  void Add(absl::string_view name, int32_t id, Kind kind);

  // True if a name may start with this byte.
  bool MayStart(char first) const { return starts_[static_cast<uint8_t>(first)]; }

  // Returns the longest name at the beginning of `text`. Guarded names must end within
  // `guarded_size` bytes.
  Match LongestPrefix(absl::string_view text, size_t guarded_size) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;  // by byte, ascending
    int32_t id = -1;
    Kind kind = Kind::kAnywhere;
  };

  int32_t Child(int32_t node, uint8_t byte) const;  // -1: none

  std::vector<Node> nodes_;  // nodes_[0] is the root
  std::array<bool, 256> starts_ = {};
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_SPECIAL_TRIE_H_
