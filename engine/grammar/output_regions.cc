#include "engine/grammar/output_regions.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "engine/grammar/token_trie.h"

namespace tidepool::engine::grammar {
namespace {

constexpr int32_t kMaxBlanks = 20;

Regex AnyByte(RegexPool* pool) { return pool->Bytes(ByteRange(0, kTokenByte - 1)); }
Regex AnyBytes(RegexPool* pool) { return pool->Repeat(AnyByte(pool), 0, kNoLimit); }
ByteSet Blanks() {
  ByteSet blanks;
  blanks.set(' ').set('\n').set('\t').set('\r');
  return blanks;
}

}  // namespace

ResponseTexts::ResponseTexts(const Tokenizer* tokenizer, const std::vector<std::string>& markers) {
  if (tokenizer == nullptr) return;
  stop_ids_.assign(tokenizer->stop_ids().begin(), tokenizer->stop_ids().end());
  for (const std::string& text : markers) {
    const std::optional<int32_t> token = tokenizer->FindToken(text);
    if (!token.has_value()) continue;
    if (tokenizer->IsControl(*token) || tokenizer->IsEndOfGeneration(*token)) {
      control_.push_back({text, *token});
    }
  }
  std::stable_sort(control_.begin(), control_.end(),
                   [](const Marker& a, const Marker& b) { return a.text.size() > b.text.size(); });
}

Marker ResponseTexts::MarkerOf(absl::string_view text) const {
  for (const Marker& marker : control_) {
    if (marker.text == text) return marker;
  }
  return {.text = std::string(text)};
}

Regex ResponseTexts::Match(absl::string_view text, RegexPool* pool) const {
  Regex result = kEmptyRegex;
  std::string plain;
  const auto flush = [&] {
    result = pool->Concat(result, pool->Literal(plain));
    plain.clear();
  };
  while (!text.empty()) {
    const auto marker = std::find_if(control_.begin(), control_.end(), [text](const Marker& one) {
      return absl::StartsWith(text, one.text);
    });
    if (marker == control_.end()) {
      plain.push_back(text.front());
      text.remove_prefix(1);
      continue;
    }
    text.remove_prefix(marker->text.size());
    flush();
    const bool ends =
        std::find(stop_ids_.begin(), stop_ids_.end(), marker->token) != stop_ids_.end();
    if (!ends) result = pool->Concat(result, pool->Literal(TokenTerm(marker->token)));
  }
  flush();
  return result;
}

Regex TextWithout(const Marker& marker, RegexPool* pool) {
  const Regex any = AnyBytes(pool);
  if (marker.token >= 0) return any;
  return pool->And(
      {any, pool->Not(pool->Concat(any, pool->Concat(pool->Literal(marker.text), any)))});
}

Regex TextThrough(const Marker& marker, RegexPool* pool) {
  const Regex any = AnyBytes(pool);
  if (marker.token >= 0) return pool->Concat(any, pool->Literal(TokenTerm(marker.token)));
  const Regex text = pool->Literal(marker.text);
  const Regex past = pool->Concat(any, pool->Concat(text, pool->Concat(AnyByte(pool), any)));
  return pool->And({pool->Concat(any, text), pool->Not(past)});
}

Regex TextNotBeginning(char first, RegexPool* pool) {
  ByteSet others = ByteRange(0, kTokenByte - 1) & ~Blanks();
  others.reset(static_cast<uint8_t>(first));
  const Regex rest = pool->Or({kEmptyRegex, pool->Concat(pool->Bytes(others), AnyBytes(pool))});
  return pool->Concat(pool->Repeat(pool->Bytes(Blanks()), 0, kNoLimit), rest);
}

Expr AfterReasoning(const Reasoning& reasoning, Expr response, OpenEnd open_end, GrammarIr* ir) {
  if (reasoning.start == ReasoningStart::kNone) return response;
  RegexPool& pool = ir->regexes();
  const Regex whole = pool.Concat(TextThrough(reasoning.end, &pool), reasoning.after);
  Expr open = ir->Seq({ir->Match(whole), response});
  if (open_end == OpenEnd::kAllowed) {
    open = ir->Alt({open, ir->Match(TextWithout(reasoning.end, &pool))});
  }
  if (reasoning.start == ReasoningStart::kOpen) return open;
  return ir->Alt({response, ir->Seq({ir->Match(reasoning.begin), open})});
}

Expr FreeTextWithParts(const Marker& marker, Expr part, Parts parts, GrammarIr* ir) {
  RegexPool& pool = ir->regexes();
  const Expr text = ir->Match(TextWithout(marker, &pool));
  const Expr through = ir->Match(TextThrough(marker, &pool));
  if (parts == Parts::kOne) {
    const Expr rest = ir->Match(pool.Repeat(pool.Bytes(Blanks()), 0, kMaxBlanks));
    return ir->Alt({text, ir->Seq({through, part, rest})});
  }
  const int32_t rule = ir->AddRule("free text");
  ir->SetRule(rule, ir->Alt({text, ir->Seq({through, part, ir->Rule(rule)})}));
  return ir->Rule(rule);
}

}  // namespace tidepool::engine::grammar
