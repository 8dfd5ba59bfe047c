#include "engine/grammar/regex_pool.h"

#include <algorithm>
#include <iterator>

#include "absl/container/flat_hash_set.h"
#include "kernels/base/background_task.h"
#include "kernels/base/check.h"

namespace tidepool::engine::grammar {
namespace {

void SortUnique(std::vector<Regex>* parts) {
  std::sort(parts->begin(), parts->end());
  parts->erase(std::unique(parts->begin(), parts->end()), parts->end());
}

}  // namespace

ByteSet ByteRange(uint8_t low, uint8_t high) {
  ByteSet set;
  for (int byte = low; byte <= high; ++byte) set.set(byte);
  return set;
}

RegexPool::RegexPool() {
  class_bytes_.push_back(0);
  const Regex nothing = Intern({.kind = Kind::kNothing, .finite = true, .viable = -1}, {});
  const Regex empty =
      Intern({.kind = Kind::kEmpty, .nullable = true, .plain = true, .finite = true}, {});
  CHECK(nothing == kNoRegex && empty == kEmptyRegex);
  any_character_ = Characters({{0, 0x10FFFF}});
  any_text_ = Repeat(any_character_, 0, kNoLimit);
}

uint64_t RegexPool::HashOf(const Node& node, absl::Span<const Regex> kids) const {
  if (kids.empty()) return absl::HashOf(node.kind, node.x, node.y, node.z);
  return absl::HashOf(node.kind, kids);
}

Regex RegexPool::Intern(Node node, absl::Span<const Regex> kids) {
  base::LetOthersRun();
  const uint64_t hash = HashOf(node, kids);
  const auto [entry, added] = by_hash_.try_emplace(hash, static_cast<Regex>(nodes_.size()));
  if (!added) {
    for (Regex at = entry->second; at >= 0; at = nodes_[at].next) {
      const Node& other = nodes_[at];
      if (other.kind != node.kind) continue;
      if (kids.empty() ? other.x == node.x && other.y == node.y && other.z == node.z
                       : KidsOf(other) == kids) {
        return at;
      }
    }
    node.next = entry->second;
    entry->second = static_cast<Regex>(nodes_.size());
  }
  if (!kids.empty()) {
    node.x = static_cast<int32_t>(kids_.size());
    node.y = static_cast<int32_t>(kids.size());
    kids_.insert(kids_.end(), kids.begin(), kids.end());
  }
  nodes_.push_back(node);
  return static_cast<Regex>(nodes_.size() - 1);
}

int32_t RegexPool::SetNumber(const ByteSet& set) {
  const auto [entry, added] = set_numbers_.try_emplace(set, static_cast<int32_t>(sets_.size()));
  if (!added) return entry->second;
  Refine(set);
  sets_.push_back(set);
  return static_cast<int32_t>(sets_.size() - 1);
}

void RegexPool::Refine(const ByteSet& set) {
  std::vector<int32_t> inside(classes(), -1);  // the new class of the bytes of `set`, by old class
  std::vector<bool> has_outside(classes(), false);
  for (int byte = 0; byte < 256; ++byte) {
    if (!set[byte]) has_outside[class_of_[byte]] = true;
  }
  bool changed = false;
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t old = class_of_[byte];
    if (!set[byte] || old >= has_outside.size() || !has_outside[old]) continue;
    if (inside[old] < 0) {
      inside[old] = classes();
      class_bytes_.push_back(static_cast<uint8_t>(byte));
      changed = true;
    }
    class_of_[byte] = static_cast<uint8_t>(inside[old]);
  }
  if (!changed) return;
  for (int byte = 255; byte >= 0; --byte) {
    class_bytes_[class_of_[byte]] = static_cast<uint8_t>(byte);
  }
  rows_.clear();
  for (Node& node : nodes_) node.row = -1;
}

Regex RegexPool::Bytes(const ByteSet& set) {
  if (set.none()) return kNoRegex;
  return Intern({.kind = Kind::kBytes, .plain = true, .finite = true, .x = SetNumber(set)}, {});
}

Regex RegexPool::Byte(uint8_t byte) {
  if (bytes_[byte] == kNoRegex) bytes_[byte] = Bytes(ByteRange(byte, byte));
  return bytes_[byte];
}

Regex RegexPool::Literal(absl::string_view text) {
  Regex result = kEmptyRegex;
  for (size_t i = text.size(); i-- > 0;) {
    result = Concat(Byte(static_cast<uint8_t>(text[i])), result);
  }
  return result;
}

// Not recursive, because a text can be long.
Regex RegexPool::Literals(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  // open[n]: the alternatives for the text after the first n bytes of `last`.
  std::vector<std::vector<Regex>> open(1);
  absl::string_view last;
  const auto close = [&](size_t size) {
    for (; open.size() > size + 1; last.remove_suffix(1)) {
      const Regex rest = Or(std::move(open.back()));
      open.pop_back();
      open.back().push_back(Concat(Byte(static_cast<uint8_t>(last.back())), rest));
    }
  };
  for (const std::string& text : texts) {
    const auto end = std::mismatch(last.begin(), last.end(), text.begin(), text.end()).first;
    close(static_cast<size_t>(end - last.begin()));
    open.resize(text.size() + 1);
    open.back().push_back(kEmptyRegex);
    last = text;
  }
  close(0);
  return Or(std::move(open[0]));
}

Regex RegexPool::AnyText() { return any_text_; }
Regex RegexPool::AnyCharacter() { return any_character_; }

Regex RegexPool::Concat(Regex head, Regex tail) {
  if (head == kNoRegex || tail == kNoRegex) return kNoRegex;
  if (head == kEmptyRegex) return tail;
  if (tail == kEmptyRegex) return head;
  std::vector<Regex> heads;
  for (; nodes_[head].kind == Kind::kConcat; head = nodes_[head].y) heads.push_back(nodes_[head].x);
  heads.push_back(head);
  for (size_t i = heads.size(); i-- > 0;) {
    const Node& left = nodes_[heads[i]];
    const Node& right = nodes_[tail];
    tail = Intern({.kind = Kind::kConcat,
                   .nullable = left.nullable && right.nullable,
                   .plain = left.plain && right.plain,
                   .finite = left.finite && right.finite,
                   .x = heads[i],
                   .y = tail},
                  {});
  }
  return tail;
}

Regex RegexPool::Or(std::vector<Regex> parts) {
  std::vector<Regex> flat;
  ByteSet bytes;
  for (const Regex part : parts) {
    const Node& node = nodes_[part];
    if (node.kind == Kind::kOr) {
      for (const Regex kid : KidsOf(node)) {
        if (nodes_[kid].kind == Kind::kBytes) {
          bytes |= sets_[nodes_[kid].x];
        } else {
          flat.push_back(kid);
        }
      }
    } else if (node.kind == Kind::kBytes) {
      bytes |= sets_[node.x];
    } else if (part != kNoRegex) {
      flat.push_back(part);
    }
  }
  if (bytes.any()) flat.push_back(Bytes(bytes));
  SortUnique(&flat);
  if (flat.empty()) return kNoRegex;
  if (flat.size() == 1) return flat[0];
  // All alternatives match only UTF-8 text, so none adds anything to AnyText.
  if (any_text_ != kNoRegex && std::binary_search(flat.begin(), flat.end(), any_text_)) {
    return any_text_;
  }
  Node result = {.kind = Kind::kOr, .plain = true, .finite = true};
  for (const Regex kid : flat) {
    result.finite &= nodes_[kid].finite;
    result.nullable |= nodes_[kid].nullable;
    result.plain &= nodes_[kid].plain;
  }
  return Intern(result, flat);
}

Regex RegexPool::And(std::vector<Regex> parts) {
  std::vector<Regex> flat;
  for (const Regex part : parts) {
    if (part == kNoRegex) return kNoRegex;
    const Node& node = nodes_[part];
    if (node.kind == Kind::kNot && node.x == kNoRegex) continue;  // matches every text
    if (node.kind == Kind::kAnd) {
      const absl::Span<const Regex> kids = KidsOf(node);
      flat.insert(flat.end(), kids.begin(), kids.end());
    } else {
      flat.push_back(part);
    }
  }
  SortUnique(&flat);
  if (flat.empty()) return Not(kNoRegex);
  if (flat.size() == 1) return flat[0];
  if (Contradicts(flat)) return kNoRegex;
  Node result = {.kind = Kind::kAnd, .nullable = true};
  bool has_plain = false;
  for (const Regex kid : flat) {
    result.finite |= nodes_[kid].finite;
    result.nullable &= nodes_[kid].nullable;
    has_plain |= kid != any_text_ && nodes_[kid].plain;
  }
  if (std::binary_search(flat.begin(), flat.end(), kEmptyRegex)) {
    return result.nullable ? kEmptyRegex : kNoRegex;
  }
  // Plain expressions match only UTF-8 text, so AnyText excludes nothing.
  if (has_plain) {
    flat.erase(std::remove(flat.begin(), flat.end(), any_text_), flat.end());
    if (flat.size() == 1) return flat[0];
  }
  return Intern(result, flat);
}

// Returns whether one of the parts is the complement of another part, or of the intersection of
// other parts. Requires: the parts are sorted.
bool RegexPool::Contradicts(absl::Span<const Regex> parts) const {
  const auto has = [parts](Regex part) {
    return std::binary_search(parts.begin(), parts.end(), part);
  };
  for (const Regex part : parts) {
    if (nodes_[part].kind != Kind::kNot) continue;
    const Regex inner = nodes_[part].x;
    if (has(inner)) return true;
    if (nodes_[inner].kind != Kind::kAnd) continue;
    const absl::Span<const Regex> kids = KidsOf(nodes_[inner]);
    if (std::all_of(kids.begin(), kids.end(), has)) return true;
  }
  return false;
}

Regex RegexPool::Not(Regex inner) {
  if (nodes_[inner].kind == Kind::kNot) return nodes_[inner].x;
  return Intern({.kind = Kind::kNot, .nullable = !nodes_[inner].nullable, .x = inner}, {});
}

Regex RegexPool::Repeat(Regex inner, int32_t min, int32_t max) {
  const Node& node = nodes_[inner];
  if (max == 0 || inner == kEmptyRegex) return kEmptyRegex;
  if (inner == kNoRegex) return min == 0 ? kEmptyRegex : kNoRegex;
  if (node.nullable) min = 0;
  if (min == 1 && max == 1) return inner;
  if (node.kind == Kind::kRepeat && node.y == 0 && node.z == kNoLimit) return inner;
  return Intern({.kind = Kind::kRepeat,
                 .nullable = min == 0,
                 .plain = node.plain,
                 .finite = node.finite && max < kNoLimit,
                 .x = inner,
                 .y = min,
                 .z = max},
                {});
}

Regex RegexPool::DeriveClass(Regex regex, int32_t byte_class) {
  const Regex raw = RawDerivative(regex, byte_class);
  return Viable(raw) ? raw : kNoRegex;
}

Regex RegexPool::RawDerivative(Regex regex, int32_t byte_class) {
  if (regex <= kEmptyRegex) return kNoRegex;
  if (nodes_[regex].row < 0) {
    nodes_[regex].row = static_cast<int32_t>(rows_.size());
    rows_.resize(rows_.size() + classes(), -1);
  }
  const Regex known = rows_[nodes_[regex].row + byte_class];
  if (known >= 0) return known;
  const Regex result = DeriveRaw(regex, byte_class);
  rows_[nodes_[regex].row + byte_class] = result;
  return result;
}

// The pool's vectors grow while a derivative is computed, so no reference into them is kept. Parts
// that match nothing are not removed: they are found by a search, which would then call itself for
// each byte.
Regex RegexPool::DeriveRaw(Regex regex, int32_t byte_class) {
  const Node node = nodes_[regex];
  switch (node.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return kNoRegex;
    case Kind::kBytes:
      return sets_[node.x][class_bytes_[byte_class]] ? kEmptyRegex : kNoRegex;
    case Kind::kConcat:
      return DeriveConcat(regex, byte_class);
    case Kind::kOr:
    case Kind::kAnd: {
      std::vector<Regex> parts(KidsOf(node).begin(), KidsOf(node).end());
      for (Regex& part : parts) {
        part = RawDerivative(part, byte_class);
        if (part == kNoRegex && node.kind == Kind::kAnd) return kNoRegex;
      }
      return node.kind == Kind::kOr ? Or(std::move(parts)) : And(std::move(parts));
    }
    case Kind::kNot:
      return Not(RawDerivative(node.x, byte_class));
    case Kind::kRepeat: {
      const Regex first = RawDerivative(node.x, byte_class);
      if (first == kNoRegex) return kNoRegex;
      const int32_t max = node.z == kNoLimit ? kNoLimit : node.z - 1;
      return Concat(first, Repeat(node.x, std::max(node.y - 1, 0), max));
    }
    case Kind::kQuoted:
      return DeriveQuoted(node, class_bytes_[byte_class]);
    case Kind::kMultiple:
      return DeriveMultiple(node, class_bytes_[byte_class]);
  }
  return kNoRegex;
}

Regex RegexPool::DeriveConcat(Regex regex, int32_t byte_class) {
  std::vector<Regex> parts;
  while (true) {
    const Node node = nodes_[regex];
    if (node.kind != Kind::kConcat) {
      parts.push_back(RawDerivative(regex, byte_class));
      break;
    }
    parts.push_back(Concat(RawDerivative(node.x, byte_class), node.y));
    if (!nodes_[node.x].nullable) break;
    regex = node.y;
  }
  return parts.size() == 1 ? parts[0] : Or(std::move(parts));
}

// Each repetition has at least one byte, or may be left out. So within `count` - 1 bytes, it does
// not matter how many more than `count` repetitions must follow, or whether there is a limit above
// `count`. Only the beginning is clipped, because most counts are there.
Regex RegexPool::ClipCounts(Regex regex, int32_t count, int depth) {
  constexpr int kMaxDepth = 4;
  const Node node = nodes_[regex];
  if (depth == kMaxDepth) return regex;
  if (node.kind == Kind::kRepeat) {
    const int32_t max = node.z > count ? kNoLimit : node.z;
    const bool same = node.y <= count && max == node.z;
    return same ? regex : Repeat(node.x, std::min(node.y, count), max);
  }
  if (node.kind == Kind::kConcat) {
    const Regex head = ClipCounts(node.x, count, depth + 1);
    const Regex tail = ClipCounts(node.y, count, depth + 1);
    return head == node.x && tail == node.y ? regex : Concat(head, tail);
  }
  if (node.kind != Kind::kQuoted) return regex;
  const Regex content = ClipCounts(node.x, count, depth + 1);
  return content == node.x ? regex : QuotedAt(node, content, node.y, node.z);
}

bool RegexPool::Matches(Regex regex, absl::string_view text) {
  for (const char c : text) {
    regex = Derive(regex, static_cast<uint8_t>(c));
    if (regex == kNoRegex) return false;
  }
  return nodes_[regex].nullable;
}

bool RegexPool::Viable(Regex regex) {
  const Node& node = nodes_[regex];
  if (node.viable != 0) return node.viable > 0;
  if (node.plain || node.nullable || IsAllButFinite(node)) {
    nodes_[regex].viable = 1;
    return true;
  }
  return Search(regex);
}

// A breadth-first search for a derivative that matches the empty text.
bool RegexPool::Search(Regex regex) {
  constexpr size_t kMaxSearch = 20'000;
  struct Step {
    Regex regex;
    int32_t from;  // index of the previous step, or -1
  };
  absl::flat_hash_set<Regex> seen = {regex};
  std::vector<Step> steps = {{regex, -1}};
  for (int32_t at = 0; at < static_cast<int32_t>(steps.size()); ++at) {
    for (int32_t byte_class = 0; byte_class < classes(); ++byte_class) {
      const Regex next = RawDerivative(steps[at].regex, byte_class);
      const Node& node = nodes_[next];
      const bool gives_up = nodes_.size() > limit_ || steps.size() > kMaxSearch;
      gave_up_ |= gives_up;
      if (node.viable > 0 || node.nullable || node.plain || gives_up) {
        for (int32_t i = at; i >= 0; i = steps[i].from) nodes_[steps[i].regex].viable = 1;
        return true;
      }
      if (node.viable == 0 && seen.insert(next).second) steps.push_back({next, at});
    }
  }
  for (const Regex none : seen) nodes_[none].viable = -1;
  return false;
}

}  // namespace tidepool::engine::grammar
