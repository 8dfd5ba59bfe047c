#include "engine/grammar/grammar_ir.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/background_task.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::grammar {

GrammarIr::GrammarIr(GrammarLimits limits) : limits_(limits) {
  regexes_.set_limit(limits.max_regexes);
  const Expr nothing = Intern({.kind = Kind::kNothing}, {});
  const Expr empty = Intern({.kind = Kind::kEmpty, .nullable = true, .productive = true}, {});
  CHECK(nothing == kNoExpr && empty == kEmptyExpr);
}

Expr GrammarIr::Intern(Node node, absl::Span<const Expr> kids) {
  base::LetOthersRun();
  const uint64_t hash = kids.empty() ? absl::HashOf(node.kind, node.x, node.y, node.z)
                                     : absl::HashOf(node.kind, kids);
  const auto [entry, added] = by_hash_.try_emplace(hash, static_cast<Expr>(nodes_.size()));
  if (!added) {
    for (Expr at = entry->second; at >= 0; at = nodes_[at].next) {
      const Node& other = nodes_[at];
      if (other.kind != node.kind) continue;
      if (kids.empty() ? other.x == node.x && other.y == node.y && other.z == node.z
                       : this->kids(other) == kids) {
        return at;
      }
    }
    node.next = entry->second;
    entry->second = static_cast<Expr>(nodes_.size());
  }
  if (!kids.empty()) {
    node.x = static_cast<int32_t>(kids_.size());
    node.y = static_cast<int32_t>(kids.size());
    kids_.insert(kids_.end(), kids.begin(), kids.end());
  }
  nodes_.push_back(node);
  Evaluate(&nodes_.back());
  if (finished_) {
    for (const Expr begin : Begins(nodes_.back())) {
      nodes_.back().rank = std::max(nodes_.back().rank, nodes_[begin].rank + 1);
    }
  }
  return static_cast<Expr>(nodes_.size() - 1);
}

Expr GrammarIr::Match(Regex regex) {
  if (regex == kNoRegex || regexes_.IsNothing(regex)) return kNoExpr;
  if (regex == kEmptyRegex) return kEmptyExpr;
  return Intern({.kind = Kind::kMatch, .x = regex}, {});
}

Expr GrammarIr::SeqTwo(Expr head, Expr tail) {
  if (head == kNoExpr || tail == kNoExpr) return kNoExpr;
  if (head == kEmptyExpr) return tail;
  if (tail == kEmptyExpr) return head;
  return Intern({.kind = Kind::kSeq, .x = head, .y = tail}, {});
}

Expr GrammarIr::Seq(absl::Span<const Expr> parts) {
  Expr result = kEmptyExpr;
  for (size_t i = parts.size(); i-- > 0;) result = SeqTwo(parts[i], result);
  return result;
}

Expr GrammarIr::Alt(std::vector<Expr> parts) {
  parts.erase(std::remove(parts.begin(), parts.end(), kNoExpr), parts.end());
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (parts.empty()) return kNoExpr;
  if (parts.size() == 1) return parts[0];
  return Intern({.kind = Kind::kAlt}, parts);
}

Expr GrammarIr::Repeat(Expr inner, int32_t min, int32_t max) {
  if (max == 0 || inner == kEmptyExpr) return kEmptyExpr;
  if (inner == kNoExpr) return min == 0 ? kEmptyExpr : kNoExpr;
  if (min == 1 && max == 1) return inner;
  return Intern({.kind = Kind::kRepeat, .x = inner, .y = min, .z = max}, {});
}

Expr GrammarIr::Rule(int32_t rule) { return Intern({.kind = Kind::kRule, .x = rule}, {}); }

int32_t GrammarIr::AddRule(absl::string_view name) {
  bodies_.push_back(kNoExpr);
  names_.emplace_back(name);
  return static_cast<int32_t>(bodies_.size() - 1);
}

// Computes the node's flags from the flags of its kids.
void GrammarIr::Evaluate(Node* node) const {
  switch (node->kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      break;
    case Kind::kMatch:
      node->nullable = regexes_.nullable(node->x);
      node->productive = true;
      break;
    case Kind::kSeq:
      node->nullable = nodes_[node->x].nullable && nodes_[node->y].nullable;
      node->productive = nodes_[node->x].productive && nodes_[node->y].productive;
      break;
    case Kind::kAlt:
      for (const Expr kid : kids(*node)) {
        node->nullable |= nodes_[kid].nullable;
        node->productive |= nodes_[kid].productive;
      }
      break;
    case Kind::kRepeat:
      node->nullable = node->y == 0 || nodes_[node->x].nullable;
      node->productive = node->y == 0 || nodes_[node->x].productive;
      break;
    case Kind::kRule:
      node->nullable = nodes_[bodies_[node->x]].nullable;
      node->productive = nodes_[bodies_[node->x]].productive;
      break;
  }
}

// Returns the expressions with which a text of `node` may begin.
std::vector<Expr> GrammarIr::Begins(const Node& node) const {
  switch (node.kind) {
    case Kind::kSeq:
      if (nodes_[node.x].nullable) return {node.x, node.y};
      return {node.x};
    case Kind::kAlt:
      return {kids(node).begin(), kids(node).end()};
    case Kind::kRepeat:
      return {node.x};
    case Kind::kRule:
      return {bodies_[node.x]};
    default:
      return {};
  }
}

// Computes `nullable` and `productive` of all expressions. The result is the least fixed point, and
// is propagated from kids to parents.
void GrammarIr::PropagateFlags() {
  std::vector<std::vector<Expr>> users(nodes_.size());
  for (Expr expr = 0; expr < static_cast<Expr>(nodes_.size()); ++expr) {
    const Node& node = nodes_[expr];
    if (node.kind == Kind::kSeq) {
      users[node.x].push_back(expr);
      users[node.y].push_back(expr);
    } else if (node.kind == Kind::kAlt) {
      for (const Expr kid : kids(node)) users[kid].push_back(expr);
    } else if (node.kind == Kind::kRepeat) {
      users[node.x].push_back(expr);
    } else if (node.kind == Kind::kRule) {
      users[bodies_[node.x]].push_back(expr);
    }
  }
  std::vector<Expr> changed;
  for (Expr expr = static_cast<Expr>(nodes_.size()); expr-- > 0;) changed.push_back(expr);
  while (!changed.empty()) {
    const Expr expr = changed.back();
    changed.pop_back();
    Node updated = nodes_[expr];
    Evaluate(&updated);
    if (updated.nullable != nodes_[expr].nullable ||
        updated.productive != nodes_[expr].productive) {
      nodes_[expr] = updated;
      changed.insert(changed.end(), users[expr].begin(), users[expr].end());
    }
  }
}

// Gives every expression a higher rank than the expressions with which its texts may begin. Returns
// an error if a rule may begin with itself.
absl::Status GrammarIr::RankAll() {
  enum class Mark : uint8_t { kNew, kOpen, kDone };
  std::vector<Mark> marks(nodes_.size(), Mark::kNew);
  for (Expr root = 0; root < static_cast<Expr>(nodes_.size()); ++root) {
    if (marks[root] != Mark::kNew) continue;
    std::vector<Expr> path = {root};
    while (!path.empty()) {
      const Expr expr = path.back();
      const std::vector<Expr> begins = Begins(nodes_[expr]);
      if (marks[expr] == Mark::kNew) {
        marks[expr] = Mark::kOpen;
        for (const Expr begin : begins) {
          if (marks[begin] == Mark::kNew) path.push_back(begin);
          if (marks[begin] != Mark::kOpen) continue;
          std::string name = "the grammar";
          for (const Expr step : path) {
            const Node& node = nodes_[step];
            if (node.kind == Kind::kRule) {
              name = absl::StrCat("rule ", base::Quoted(names_[node.x]));
            }
          }
          return absl::InvalidArgumentError(absl::StrCat(
              name, " is left-recursive: it can begin with itself; rewrite it as a repetition"));
        }
        continue;
      }
      path.pop_back();
      if (marks[expr] == Mark::kDone) continue;
      marks[expr] = Mark::kDone;
      int32_t rank = 0;
      for (const Expr begin : begins) rank = std::max(rank, nodes_[begin].rank + 1);
      nodes_[expr].rank = rank;
    }
  }
  return absl::OkStatus();
}

absl::Status GrammarIr::CheckLimits() const {
  if (nodes_.size() <= limits_.max_exprs && !regexes_.over_limit()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the grammar is too large: it needs more than ", limits_.max_exprs,
                   " grammar or ", limits_.max_regexes, " regular expressions; simplify it"));
}

absl::Status GrammarIr::Finish() {
  PropagateFlags();
  RETURN_IF_ERROR(RankAll());
  RETURN_IF_ERROR(CheckLimits());
  if (!nodes_[start_].productive) {
    return absl::InvalidArgumentError("no text matches the grammar");
  }
  finished_ = true;
  return absl::OkStatus();
}

}  // namespace tidepool::engine::grammar
