#include "engine/tokenizer/special_trie.h"

#include <algorithm>

#include "engine/tokenizer/word_edges.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

bool ByteBelow(const std::pair<uint8_t, int32_t>& child, uint8_t byte) {
  return child.first < byte;
}

}  // namespace

int32_t SpecialTrie::Child(int32_t node, uint8_t byte) const {
  const auto& children = nodes_[node].children;
  const auto it = std::lower_bound(children.begin(), children.end(), byte, ByteBelow);
  return it != children.end() && it->first == byte ? it->second : -1;
}

void SpecialTrie::Add(absl::string_view name, int32_t id, Kind kind) {
  CHECK(!name.empty());
  starts_[static_cast<uint8_t>(name[0])] = true;
  int32_t node = 0;
  for (const char c : name) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = Child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      auto& children = nodes_[node].children;
      children.insert(std::lower_bound(children.begin(), children.end(), byte, ByteBelow),
                      {byte, next});
      nodes_.emplace_back();
    }
    node = next;
  }
  if (nodes_[node].id >= 0) return;
  nodes_[node].id = id;
  nodes_[node].kind = kind;
}

SpecialTrie::Match SpecialTrie::LongestPrefix(absl::string_view text, size_t guarded_size) const {
  Match best;
  int32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    node = Child(node, static_cast<uint8_t>(text[i]));
    if (node < 0) break;
    const Node& here = nodes_[node];
    if (here.id >= 0 && (here.kind == Kind::kAnywhere || i + 1 <= guarded_size)) {
      best = {here.id, i + 1};
    }
  }
  return best;
}

SpecialTrie::Range SpecialTrie::Widen(absl::string_view text, size_t first, size_t at,
                                      Match match) const {
  Range range = {at, at + match.size};
  const auto found = edges_.find(match.id);
  if (found == edges_.end()) return range;
  const Edges edges = found->second;
  const absl::string_view after = text.substr(range.end);
  if (edges.whole_word && (EndsInWord(text.substr(0, at)) || StartsInWord(after))) return {};
  if (edges.strip_before) range.begin -= SpacesAtEnd(text.substr(first, at - first));
  if (edges.strip_after) range.end += SpacesAtStart(after);
  return range;
}

}  // namespace tidepool::engine
