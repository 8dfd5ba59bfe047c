#include "engine/grammar/output_regions.h"

#include <optional>

#include "engine/grammar/token_trie.h"

namespace tidepool::engine::grammar {
namespace {

constexpr int32_t kMaxLineBreaks = 2;
constexpr int32_t kMaxBlanks = 20;

Regex AnyByte(RegexPool* pool) { return pool->Bytes(ByteRange(0, kTokenByte - 1)); }

// The markers that are ordinary text, as one expression, and those that are tokens.
struct SplitMarkers {
  SplitMarkers(const std::vector<Marker>& markers, RegexPool* pool) {
    std::vector<Regex> plain, control;
    for (const Marker& marker : markers) {
      (marker.token < 0 ? plain : control).push_back(MarkerRegex(marker, pool));
    }
    texts = pool->Or(std::move(plain));
    tokens = pool->Or(std::move(control));
  }
  Regex texts = kNoRegex;
  Regex tokens = kNoRegex;
};

Regex WithoutTexts(Regex texts, RegexPool* pool) {
  const Regex any = pool->Repeat(AnyByte(pool), 0, kNoLimit);
  if (texts == kNoRegex) return any;
  return pool->And({any, pool->Not(pool->Concat(any, pool->Concat(texts, any)))});
}

}  // namespace

Marker FindMarker(const Tokenizer& tokenizer, absl::string_view text) {
  Marker marker = {.text = std::string(text)};
  const std::optional<int32_t> token = tokenizer.FindToken(text);
  if (token.has_value() && tokenizer.IsControl(*token)) marker.token = *token;
  return marker;
}

Regex MarkerRegex(const Marker& marker, RegexPool* pool) {
  return pool->Literal(marker.token < 0 ? marker.text : TokenTerm(marker.token));
}

Regex TextWithout(const std::vector<Marker>& markers, RegexPool* pool) {
  return WithoutTexts(SplitMarkers(markers, pool).texts, pool);
}

Regex TextThrough(const std::vector<Marker>& markers, RegexPool* pool) {
  const SplitMarkers split(markers, pool);
  std::vector<Regex> ends;
  if (split.tokens != kNoRegex) {
    ends.push_back(pool->Concat(WithoutTexts(split.texts, pool), split.tokens));
  }
  if (split.texts != kNoRegex) {
    const Regex any = pool->Repeat(AnyByte(pool), 0, kNoLimit);
    const Regex more = pool->Concat(AnyByte(pool), any);
    const Regex past = pool->Concat(any, pool->Concat(split.texts, more));
    ends.push_back(pool->And({pool->Concat(any, split.texts), pool->Not(past)}));
  }
  return pool->Or(std::move(ends));
}

Expr AfterReasoning(const Reasoning& reasoning, Expr response, GrammarIr* ir) {
  if (reasoning.start == ReasoningStart::kNone) return response;
  RegexPool& pool = ir->regexes();
  const Regex breaks = pool.Repeat(pool.Literal("\n"), 0, kMaxLineBreaks);
  const Regex reasons = pool.Concat(TextThrough({reasoning.end}, &pool), breaks);
  Expr open = ir->Seq({ir->Match(reasons), response});
  if (reasoning.may_stay_open) {
    open = ir->Alt({open, ir->Match(TextWithout({reasoning.end}, &pool))});
  }
  if (reasoning.start == ReasoningStart::kOpen) return open;
  const Regex begin = pool.Concat(breaks, MarkerRegex(reasoning.begin, &pool));
  return ir->Alt({response, ir->Seq({ir->Match(begin), open})});
}

Expr FreeTextWithParts(const std::vector<Marker>& markers, Expr part, Parts parts, GrammarIr* ir) {
  RegexPool& pool = ir->regexes();
  const Expr text = ir->Match(TextWithout(markers, &pool));
  const Expr through = ir->Match(TextThrough(markers, &pool));
  if (parts == Parts::kOne) {
    ByteSet blanks;
    blanks.set(' ').set('\n').set('\t').set('\r');
    const Expr rest = ir->Match(pool.Repeat(pool.Bytes(blanks), 0, kMaxBlanks));
    return ir->Alt({text, ir->Seq({through, part, rest})});
  }
  const int32_t rule = ir->AddRule("free text");
  ir->SetRule(rule, ir->Alt({text, ir->Seq({through, part, ir->Rule(rule)})}));
  return ir->Rule(rule);
}

}  // namespace tidepool::engine::grammar
