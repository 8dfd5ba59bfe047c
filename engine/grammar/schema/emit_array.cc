// Writes arrays: items by index, with counts for "contains", and with the values that were used for
// "uniqueItems".
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/grammar/schema/finite_values.h"
#include "engine/grammar/schema/schema_emitter.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::grammar {
namespace {

constexpr size_t kMaxStates = 50'000;
constexpr size_t kMaxContains = 3;
constexpr size_t kMaxUniqueValues = 8;

// The state after some items: the number of items, the number of matches of each "contains", and
// the values that were used. Larger numbers that allow the same items are not distinguished.
struct Count {
  int64_t items = 0;
  std::vector<int64_t> matches;
  uint32_t used = 0;
  bool operator<(const Count& other) const {
    return std::tie(items, matches, used) < std::tie(other.items, other.matches, other.used);
  }
};

class ArrayWriter {
 public:
  ArrayWriter(const ArrayShape& array, SchemaEmitter* emitter)
      : array_(array), emitter_(*emitter), ir_(emitter->ir()) {}

  absl::StatusOr<Expr> Write() {
    unique_ = array_.unique && array_.max > 1;
    if (array_.contains.size() > kMaxContains) {
      return absl::InvalidArgumentError("contains: more than 3 conditions for one array");
    }
    if (!unique_ && array_.contains.empty()) return Simple();
    if (unique_) RETURN_IF_ERROR(CollectValues());
    return Counted();
  }

 private:
  Expr Item(int64_t index) { return emitter_.Value(array_.ItemAt(index)); }
  Expr More(Expr item) { return ir_.Seq({emitter_.tokens().comma, item}); }

  // Writes an array without conditions that involve several items.
  Expr Simple() {
    const auto prefix = static_cast<int64_t>(array_.prefix.size());
    const JsonTokens& tokens = emitter_.tokens();
    // index of the first of the items that are all alike
    const int64_t first = std::max<int64_t>(prefix, 1);
    Expr rest = kNoExpr;
    if (array_.max >= first) {
      const int64_t max = array_.max == kNoLimit ? kNoLimit : array_.max - first;
      const Expr others = ir_.Repeat(More(emitter_.Value(array_.items)),
                                     static_cast<int32_t>(std::max<int64_t>(array_.min - first, 0)),
                                     static_cast<int32_t>(max));
      rest = ir_.Seq({others, tokens.close_array});
    }
    for (int64_t i = first; i-- > 0;) {
      // `rest` is what follows the first i + 1 items.
      const Expr item = i == 0 ? Item(0) : More(Item(i));
      const Expr with = i < array_.max ? ir_.Seq({item, rest}) : kNoExpr;
      const Expr close = i == 0 ? tokens.close_empty_array : tokens.close_array;
      rest = ir_.Alt({i >= array_.min ? close : kNoExpr, with});
    }
    return ir_.Seq({tokens.open_array, rest});
  }

  absl::Status CollectValues() {
    std::vector<Term> terms = array_.prefix;
    terms.push_back(array_.items);
    for (const Term term : terms) {
      ASSIGN_OR_RETURN(const Shapes* shapes, emitter_.normalizer().Normalize(term));
      const std::optional<std::vector<std::string>> texts =
          FiniteValues(*shapes, kMaxUniqueValues, &ir_.regexes());
      if (!texts.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("uniqueItems: only supported for items with at most ", kMaxUniqueValues,
                         " possible values (enum, const, boolean or null), or with maxItems 1"));
      }
      allowed_.push_back(*texts);
      for (const std::string& text : *texts) {
        if (std::find(values_.begin(), values_.end(), text) == values_.end()) {
          values_.push_back(text);
        }
      }
    }
    if (values_.size() <= kMaxUniqueValues && array_.contains.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "uniqueItems: too many possible values, or beside contains; simplify the items");
  }

  absl::StatusOr<Expr> Counted() {
    Count none;
    none.matches.resize(array_.contains.size());
    const Expr start = StateAfter(none);
    while (!left_.empty()) {
      const Count count = left_.back();
      left_.pop_back();
      std::vector<Expr> choices;
      if (Complete(count)) {
        choices.push_back(count.items == 0 ? emitter_.tokens().close_empty_array
                                           : emitter_.tokens().close_array);
      }
      if (count.items < array_.max) AddItems(count, &choices);
      ir_.SetRule(rules_.at(count), ir_.Alt(std::move(choices)));
      if (rules_.size() > kMaxStates) {
        return absl::InvalidArgumentError(
            "contains: the counts of items and matches are too large; use smaller limits");
      }
    }
    return ir_.Seq({emitter_.tokens().open_array, start});
  }

  bool Complete(const Count& count) const {
    if (count.items < array_.min) return false;
    for (size_t i = 0; i < count.matches.size(); ++i) {
      if (count.matches[i] < array_.contains[i].min) return false;
    }
    return true;
  }

  Expr StateAfter(Count count) {
    const auto prefix = static_cast<int64_t>(array_.prefix.size());
    int64_t cap = std::max<int64_t>({prefix, array_.min, 1});
    for (const Contains& contains : array_.contains) cap = std::max(cap, contains.from);
    if (array_.max < kNoLimit) cap = array_.max;
    count.items = std::min(count.items, cap);
    for (size_t i = 0; i < count.matches.size(); ++i) {
      const Contains& contains = array_.contains[i];
      const int64_t most = contains.max < kNoLimit ? contains.max + 1 : contains.min;
      count.matches[i] = std::min(count.matches[i], most);
    }
    const auto [entry, added] = rules_.try_emplace(count, 0);
    if (added) {
      entry->second = ir_.AddRule("an array");
      left_.push_back(count);
    }
    return ir_.Rule(entry->second);
  }

  void AddItems(const Count& count, std::vector<Expr>* choices) {
    const auto add = [&](Expr item, const Count& after) {
      const Expr text = count.items == 0 ? item : More(item);
      choices->push_back(ir_.Seq({text, StateAfter(after)}));
    };
    Count after = count;
    ++after.items;
    if (unique_) {
      const size_t place = std::min<size_t>(count.items, array_.prefix.size());
      for (size_t i = 0; i < values_.size(); ++i) {
        const auto& allowed = allowed_[place];
        const bool fits = std::find(allowed.begin(), allowed.end(), values_[i]) != allowed.end();
        if (!fits || (count.used >> i & 1) != 0) continue;
        after.used = count.used | 1U << i;
        add(ir_.Match(ir_.regexes().Literal(values_[i])), after);
      }
      return;
    }
    // For each "contains", the item either matches and is counted, or is not counted. If there is
    // no maximum, an item that is not counted may match, too.
    SchemaTerms& terms = emitter_.normalizer().terms();
    for (size_t bits = 0; bits < size_t{1} << array_.contains.size(); ++bits) {
      std::vector<Term> parts = {array_.ItemAt(count.items)};
      after.matches = count.matches;
      bool possible = true;
      for (size_t i = 0; i < array_.contains.size(); ++i) {
        const Contains& contains = array_.contains[i];
        const bool counts = count.items >= contains.from;
        if ((bits >> i & 1) != 0) {
          possible &= counts && count.matches[i] < contains.max;
          ++after.matches[i];
          parts.push_back(contains.item);
        } else if (counts && contains.max < kNoLimit) {
          parts.push_back(terms.Not(contains.item));
        }
      }
      if (possible) add(emitter_.Value(terms.And(std::move(parts))), after);
    }
  }

  const ArrayShape& array_;
  SchemaEmitter& emitter_;
  GrammarIr& ir_;
  bool unique_ = false;
  std::vector<std::string> values_;  // JSON texts
  // by index; the last element is for all further items
  std::vector<std::vector<std::string>> allowed_;
  std::map<Count, int32_t> rules_;
  std::vector<Count> left_;
};

}  // namespace

absl::StatusOr<Expr> EmitArray(const ArrayShape& array, SchemaEmitter* emitter) {
  return ArrayWriter(array, emitter).Write();
}

}  // namespace tidepool::engine::grammar
