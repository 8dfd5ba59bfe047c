#include "engine/grammar/regex_parser.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/code_points.h"
#include "engine/grammar/regex_syntax.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::grammar {
namespace {

using Node = RegexNode;

// Builds a parsed expression. `rest` is the expression for the text after a node. So $ and
// look-ahead become intersections with `rest`.
class Builder {
 public:
  Builder(const std::vector<Node>& nodes, RegexPool* pool) : nodes_(nodes), pool_(*pool) {}

  // Whether the text before the node is empty.
  enum class Position : uint8_t { kStart, kInside };

  Regex Build(int32_t number, Regex rest, Position position) {
    const Node& node = nodes_[number];
    switch (node.kind) {
      case Node::Kind::kEmpty:
        return rest;
      case Node::Kind::kSet:
        return pool_.Concat(pool_.Characters(node.set), rest);
      case Node::Kind::kStart:
        return position == Position::kStart ? rest : kNoRegex;
      case Node::Kind::kEnd:
        return pool_.nullable(rest) ? kEmptyRegex : kNoRegex;
      case Node::Kind::kAhead:
      case Node::Kind::kNotAhead: {
        const Regex seen = Build(node.kids[0], pool_.AnyText(), position);
        return pool_.And({rest, node.kind == Node::Kind::kAhead ? seen : pool_.Not(seen)});
      }
      case Node::Kind::kOr: {
        std::vector<Regex> parts;
        for (const int32_t kid : node.kids) parts.push_back(Build(kid, rest, position));
        return pool_.Or(std::move(parts));
      }
      case Node::Kind::kConcat:
        return BuildConcat(node, 0, rest, position);
      case Node::Kind::kRepeat: {
        if (!Asserts(node.kids[0])) {
          const Regex inner = Build(node.kids[0], kEmptyRegex, Position::kInside);
          return pool_.Concat(pool_.Repeat(inner, node.min, node.max), rest);
        }
        // The parser refuses repetitions of an assertion whose maximum is above 1.
        const Regex once = Build(node.kids[0], rest, position);
        return node.min == 0 ? pool_.Or({rest, once}) : once;
      }
    }
    return kNoRegex;
  }

  bool Asserts(int32_t number) const { return nodes_[number].asserts; }

 private:
  Regex BuildConcat(const Node& node, size_t first, Regex rest, Position position) {
    if (position == Position::kStart && HasStart(node, first + 1)) {
      return BuildSplit(node, first, rest);
    }
    for (size_t i = node.kids.size(); i-- > first;) {
      const Position here =
          i == first && position == Position::kStart ? Position::kStart : Position::kInside;
      rest = Build(node.kids[i], rest, here);
    }
    return rest;
  }

  // Builds the kids from `first` on, at the start of the text, if a later kid has a ^. There are
  // two cases: the first kid matches the empty text, or the other kids are not at the start of the
  // text.
  Regex BuildSplit(const Node& node, size_t first, Regex rest) {
    Regex inside = rest;
    for (size_t i = node.kids.size(); i-- > first + 1;) {
      inside = Build(node.kids[i], inside, Position::kInside);
    }
    const Regex others = BuildConcat(node, first + 1, rest, Position::kStart);
    const int32_t kid = node.kids[first];
    if (Asserts(kid)) {
      // An assertion that may match text cannot be split exactly; the parser refuses it.
      return Build(kid, others, Position::kStart);
    }
    const Regex own = Build(kid, kEmptyRegex, Position::kStart);
    const Regex some = pool_.And({own, pool_.Repeat(pool_.AnyCharacter(), 1, kNoLimit)});
    const Regex with_text = pool_.Concat(some, inside);
    return pool_.nullable(own) ? pool_.Or({with_text, others}) : with_text;
  }

  bool HasStart(const Node& node, size_t from) const {
    for (size_t i = from; i < node.kids.size(); ++i) {
      if (nodes_[node.kids[i]].has_start) return true;
    }
    return false;
  }

  const std::vector<Node>& nodes_;
  RegexPool& pool_;
};

}  // namespace

absl::StatusOr<Regex> ParseRegex(absl::string_view pattern, RegexScope scope, RegexPool* pool) {
  const LookAhead ahead = scope == RegexScope::kSearch ? LookAhead::kAllowed : LookAhead::kRefused;
  ASSIGN_OR_RETURN(const RegexSyntax syntax, ParseRegexSyntax(pattern, ahead));
  Builder builder(syntax.nodes, pool);
  using Position = Builder::Position;
  if (scope == RegexScope::kWhole) return builder.Build(syntax.root, kEmptyRegex, Position::kStart);
  const Regex any = pool->AnyText();
  const Regex inside = builder.Build(syntax.root, any, Position::kInside);
  if (!syntax.nodes[syntax.root].has_start) return pool->Concat(any, inside);
  const Regex start = builder.Build(syntax.root, any, Position::kStart);
  const Regex some = pool->Repeat(pool->AnyCharacter(), 1, kNoLimit);
  return pool->Or({start, pool->Concat(some, inside)});
}

}  // namespace tidepool::engine::grammar
