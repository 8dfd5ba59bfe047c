// Writes objects: the named properties in order, and then the other properties.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/grammar/schema/schema_emitter.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::grammar {
namespace {

constexpr size_t kMaxKeyClasses = 32;
constexpr size_t kMaxExists = 8;
constexpr int64_t kMaxStates = 200'000;

class ObjectWriter {
 public:
  ObjectWriter(const ObjectShape& object, SchemaEmitter* emitter)
      : object_(object), emitter_(*emitter), ir_(emitter->ir()) {}

  absl::StatusOr<Expr> Write() {
    RETURN_IF_ERROR(CollectNamed());
    RETURN_IF_ERROR(CollectOthers());
    RETURN_IF_ERROR(CheckCounts());
    return Build();
  }

 private:
  // A named property, or the properties whose keys are in one KeyClass.
  struct Member {
    Expr text;      // key, colon and value
    bool required;  // only for a named property
    uint32_t bits;  // bit i: the key counts for object_.exists[i]
  };
  // A set of keys that match the same rules and conditions.
  struct KeyClass {
    Regex keys;
    std::vector<Term> values;
    Escapes escapes = Escapes::kAny;
    uint32_t bits = 0;
  };

  absl::Status CollectNamed() {
    if (object_.exists.size() > kMaxExists) return TooMany("conditions on undeclared properties");
    for (const PropertyRule& rule : object_.rules) {
      if (rule.name.has_value()) AddNamed(*rule.name);
    }
    for (const std::string& name : object_.required) AddNamed(name);
    return absl::OkStatus();
  }

  void AddNamed(const std::string& name) {
    if (!seen_.insert(name).second) return;
    RegexPool& pool = ir_.regexes();
    const Regex key = pool.Literal(name);
    const auto& required = object_.required;
    Member member = {.required =
                         std::find(required.begin(), required.end(), name) != required.end()};
    for (size_t i = 0; i < object_.exists.size(); ++i) {
      if (pool.Matches(object_.exists[i], name)) member.bits |= 1U << i;
    }
    const Term value = emitter_.normalizer().sets().ValueOf(object_, name);
    if (value == kFalseTerm && !member.required) return;
    member.text = ir_.Seq({emitter_.Key(key, Escapes::kNeeded), emitter_.Value(value)});
    named_.push_back(member);
  }

  // Divides the keys without a name by the rules and conditions that they match.
  absl::Status CollectOthers() {
    RegexPool& pool = ir_.regexes();
    Regex rest = pool.AnyText();
    if (!seen_.empty()) {
      rest = pool.And({rest, pool.Not(pool.Literals({seen_.begin(), seen_.end()}))});
    }
    std::vector<KeyClass> classes = {{.keys = rest}};
    for (const PropertyRule& rule : object_.rules) {
      if (rule.name.has_value()) continue;
      RETURN_IF_ERROR(Divide(rule.keys, &classes, [&rule](KeyClass* inside) {
        inside->values.push_back(rule.value);
        if (rule.is_pattern) inside->escapes = Escapes::kNeeded;
      }));
    }
    for (size_t i = 0; i < object_.exists.size(); ++i) {
      RETURN_IF_ERROR(
          Divide(object_.exists[i], &classes, [i](KeyClass* inside) { inside->bits |= 1U << i; }));
    }
    for (KeyClass& one : classes) {
      const Term value = emitter_.normalizer().terms().And(std::move(one.values));
      if (value == kFalseTerm) continue;
      others_.push_back(
          {.text = ir_.Seq({emitter_.Key(one.keys, one.escapes), emitter_.Value(value)}),
           .bits = one.bits});
    }
    return absl::OkStatus();
  }

  template <typename Mark>
  absl::Status Divide(Regex keys, std::vector<KeyClass>* classes, Mark mark) {
    RegexPool& pool = ir_.regexes();
    std::vector<KeyClass> divided;
    for (const KeyClass& one : *classes) {
      KeyClass inside = one, outside = one;
      inside.keys = pool.And({one.keys, keys});
      outside.keys = pool.And({one.keys, pool.Not(keys)});
      mark(&inside);
      if (!pool.IsNothing(inside.keys)) divided.push_back(std::move(inside));
      if (!pool.IsNothing(outside.keys)) divided.push_back(std::move(outside));
    }
    *classes = std::move(divided);
    if (classes->size() > kMaxKeyClasses || pool.over_limit()) {
      return TooMany("patterns that overlap");
    }
    return absl::OkStatus();
  }

  // A key that occurs twice counts once. A grammar can exclude repeated keys only for named
  // properties.
  absl::Status CheckCounts() {
    const auto required = static_cast<int64_t>(object_.required.size());
    min_ = object_.min > required ? object_.min : 0;
    if (min_ - required >= 2 && !others_.empty()) {
      return absl::InvalidArgumentError(
          "minProperties: undeclared properties could repeat a key to reach the minimum; list the "
          "properties and set additionalProperties to false, or require some of them");
    }
    cap_ = object_.max < kNoLimit ? object_.max : min_;
    const auto members = static_cast<int64_t>(named_.size());
    // Without other properties, there are at most `members` properties.
    if (others_.empty() && object_.max >= members) cap_ = std::min(cap_, min_);
    if (cap_ > kMaxStates || (members + 1) * (cap_ + 1) << object_.exists.size() > kMaxStates) {
      return TooMany("properties for minProperties or maxProperties");
    }
    return absl::OkStatus();
  }

  absl::Status TooMany(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("the object has too many ", what));
  }

  // Returns whether the object may end after `count` properties that satisfy the conditions in
  // `bits`, before named_[next].
  bool MayClose(size_t next, int64_t count, uint32_t bits) const {
    const bool complete = bits + 1 == 1U << object_.exists.size();
    return next >= after_required_ && count >= min_ && complete;
  }
  bool MayAdd(int64_t count) const { return object_.max == kNoLimit || count < object_.max; }
  int64_t Index(int64_t count, uint32_t bits) const {
    return std::min(count, cap_) << object_.exists.size() | bits;
  }

  // Builds the texts from the last property to the first. For each state, `more` is the text after
  // a property, and `next` is the text that begins with the next property.
  absl::StatusOr<Expr> Build() {
    const int64_t states = (cap_ + 1) << object_.exists.size();
    const size_t size = named_.size();
    for (size_t i = 0; i < size; ++i) {
      if (named_[i].required) after_required_ = i + 1;
    }
    std::vector<int32_t> rules;
    std::vector<Expr> more, next(states);
    for (int64_t state = 0; state < states; ++state) {
      rules.push_back(ir_.AddRule("an object"));
      more.push_back(ir_.Rule(rules.back()));
    }
    for (size_t i = size + 1; i-- > 0;) {
      std::vector<Expr> begins(states);
      for (int64_t state = 0; state < states; ++state) {
        const int64_t count = state >> object_.exists.size();
        const auto bits = static_cast<uint32_t>(state & ((1 << object_.exists.size()) - 1));
        begins[state] = Begin(i, count, bits, more, next);
      }
      next = std::move(begins);
      std::vector<Expr> after(states);
      for (int64_t state = 0; state < states; ++state) {
        const int64_t count = state >> object_.exists.size();
        const auto bits = static_cast<uint32_t>(state & ((1 << object_.exists.size()) - 1));
        const Expr close = MayClose(i, count, bits) ? emitter_.tokens().close_object : kNoExpr;
        after[state] = ir_.Alt({close, ir_.Seq({emitter_.tokens().comma, next[state]})});
      }
      if (i == size) {
        for (int64_t state = 0; state < states; ++state) ir_.SetRule(rules[state], after[state]);
      } else {
        more = std::move(after);
      }
    }
    const Expr empty = MayClose(0, 0, 0) ? emitter_.tokens().close_empty_object : kNoExpr;
    return ir_.Seq({emitter_.tokens().open_object, ir_.Alt({empty, next[0]})});
  }

  // Returns the texts that begin with named_[i] or with a later property.
  Expr Begin(size_t i, int64_t count, uint32_t bits, const std::vector<Expr>& more,
             const std::vector<Expr>& next) {
    std::vector<Expr> choices;
    if (i == named_.size()) {
      for (const Member& other : others_) {
        if (!MayAdd(count)) break;
        choices.push_back(ir_.Seq({other.text, more[Index(count + 1, bits | other.bits)]}));
      }
      return ir_.Alt(std::move(choices));
    }
    const Member& member = named_[i];
    if (MayAdd(count)) {
      choices.push_back(ir_.Seq({member.text, more[Index(count + 1, bits | member.bits)]}));
    }
    if (!member.required) choices.push_back(next[Index(count, bits)]);
    return ir_.Alt(std::move(choices));
  }

  const ObjectShape& object_;
  SchemaEmitter& emitter_;
  GrammarIr& ir_;
  std::set<std::string> seen_;  // the names in named_, and those of impossible properties
  std::vector<Member> named_;
  std::vector<Member> others_;
  int64_t min_ = 0;
  int64_t cap_ = 0;  // larger counts are not distinguished
  size_t after_required_ = 0;
};

}  // namespace

absl::StatusOr<Expr> EmitObject(const ObjectShape& object, SchemaEmitter* emitter) {
  return ObjectWriter(object, emitter).Write();
}

}  // namespace tidepool::engine::grammar
