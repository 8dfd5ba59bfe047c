// GrammarIr: the intermediate representation of grammars from all sources: rules over regular
// expressions.
//
//   GrammarIr ir;
//   const int32_t list = ir.AddRule("list");
//   const Expr item = ir.Match(ir.regexes().Literal("x"));
//   ir.SetRule(list, ir.Alt({item, ir.Seq({item, ir.Match(ir.regexes().Literal(",")),
//                                          ir.Rule(list)})}));
//   ir.set_start(ir.Rule(list));
//   RETURN_IF_ERROR(ir.Finish());
#ifndef TIDEPOOL_ENGINE_GRAMMAR_GRAMMAR_IR_H_
#define TIDEPOOL_ENGINE_GRAMMAR_GRAMMAR_IR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/grammar/regex_pool.h"

namespace tidepool::engine::grammar {

// The number of an expression of a grammar. Equal expressions have equal numbers.
using Expr = int32_t;
inline constexpr Expr kNoExpr = 0;     // matches no text
inline constexpr Expr kEmptyExpr = 1;  // matches the empty text

struct GrammarLimits {
  size_t max_exprs = 500'000;
  size_t max_regexes = 200'000;
};

// Thread-compatible. Copies are independent.
class GrammarIr {
 public:
  enum class Kind : uint8_t {
    kNothing,
    kEmpty,
    kMatch,   // x: the regular expression
    kSeq,     // x, then y
    kAlt,     // x: first of the kids, y: their number
    kRepeat,  // x: inner, y: min, z: max
    kRule,    // x: the rule
  };
  struct Node {
    Kind kind = Kind::kNothing;
    bool nullable = false;
    bool productive = false;  // matches some text
    // Greater than the rank of every other expression with which a text of this expression may
    // begin.
    int32_t rank = 0;
    int32_t x = 0;
    int32_t y = 0;
    int32_t z = 0;
    int32_t next = -1;  // the next expression with the same hash
  };

  explicit GrammarIr(GrammarLimits limits = {});

  RegexPool& regexes() { return regexes_; }
  const RegexPool& regexes() const { return regexes_; }

  Expr Match(Regex regex);
  Expr Seq(absl::Span<const Expr> parts);
  Expr Alt(std::vector<Expr> parts);
  Expr Repeat(Expr inner, int32_t min, int32_t max);
  Expr Rule(int32_t rule);

  // `name` is for error messages.
  int32_t AddRule(absl::string_view name);
  void SetRule(int32_t rule, Expr body) { bodies_[rule] = body; }
  Expr body(int32_t rule) const { return bodies_[rule]; }
  Expr start() const { return start_; }
  void set_start(Expr start) { start_ = start; }

  // Analyses the grammar. Call it once, after the last rule. Returns INVALID_ARGUMENT if no text
  // matches, if a rule is left-recursive, or if the grammar is over its limits.
  absl::Status Finish();

  // Returns INVALID_ARGUMENT if the grammar is over its limits. Long builds call this.
  absl::Status CheckLimits() const;

  const Node& node(Expr expr) const { return nodes_[expr]; }
  absl::Span<const Expr> kids(const Node& node) const {
    return absl::MakeConstSpan(kids_).subspan(node.x, node.y);
  }
  size_t size() const { return nodes_.size(); }

 private:
  Expr Intern(Node node, absl::Span<const Expr> kids);
  Expr SeqTwo(Expr head, Expr tail);
  void Evaluate(Node* node) const;
  std::vector<Expr> Begins(const Node& node) const;
  void PropagateFlags();
  absl::Status RankAll();

  const GrammarLimits limits_;
  RegexPool regexes_;
  std::vector<Node> nodes_;
  std::vector<Expr> kids_;
  absl::flat_hash_map<uint64_t, Expr> by_hash_;
  std::vector<Expr> bodies_;  // by rule
  std::vector<std::string> names_;
  Expr start_ = kNoExpr;
  bool finished_ = false;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_GRAMMAR_IR_H_
