// The regular expressions of the byte-level vocabularies, by their names in GGUF.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/tokenizer/pre_tokenizer.h"

namespace tidepool::engine {
namespace {

// Unicode's White_Space, as the inside of a bracket. PCRE2's own \s also has U+180E, which is none
// since Unicode 6.3 and is none to the tokenizers that made the vocabularies.
constexpr absl::string_view kSpace =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Patterns are written with SPACE for the inside of that bracket.
std::string Expand(absl::string_view pattern) {
  return absl::StrReplaceAll(pattern, {{"SPACE", kSpace}});
}

constexpr absl::string_view kAnyCaseContraction = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|)";
constexpr absl::string_view kContraction = R"('s|'t|'re|'ve|'m|'ll|'d|)";
constexpr absl::string_view kWord = R"([^\r\n\p{L}\p{N}]?\p{L}+|)";
constexpr absl::string_view kSymbols = R"( ?[^SPACE\p{L}\p{N}]+[\r\n]*|)";
constexpr absl::string_view kSpaceTail = R"([SPACE]*[\r\n]+|[SPACE]+(?![^SPACE])|[SPACE]+)";

// "hello HELLO Hello": case changes cut words too (tekken, GPT-4o).
constexpr absl::string_view kCasedWordLow =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)";
constexpr absl::string_view kCasedWordHigh =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)";
constexpr absl::string_view kCasedTail =
    R"( ?[^SPACE\p{L}\p{N}]+[\r\n/]*|[SPACE]*[\r\n]+|[SPACE]+(?![^SPACE])|[SPACE]+)";

std::string Gpt2() {
  return Expand(absl::StrCat(kContraction,
                             R"( ?\p{L}+| ?\p{N}+| ?[^SPACE\p{L}\p{N}]+|[SPACE]+(?![^SPACE]))"));
}

std::string Qwen2(absl::string_view digits) {
  return Expand(absl::StrCat(kAnyCaseContraction, kWord, digits, "|", kSymbols, kSpaceTail));
}

std::string Qwen35() {
  return Expand(absl::StrCat(kAnyCaseContraction, R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)",
                             R"( ?[^SPACE\p{L}\p{M}\p{N}]+[\r\n]*|)", kSpaceTail));
}

std::string Tekken() {
  return Expand(absl::StrCat(kCasedWordLow, "|", kCasedWordHigh, R"(|\p{N}|)", kCasedTail));
}

std::string Gpt4o() {
  constexpr absl::string_view kSuffix = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)";
  return Expand(
      absl::StrCat(kCasedWordLow, kSuffix, kCasedWordHigh, kSuffix, R"(\p{N}{1,3}|)", kCasedTail));
}

std::vector<std::string> DeepSeekV3() {
  return {R"(\p{N}{1,3})", R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)",
          Expand(absl::StrCat(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)",
                              R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)",
                              kSpaceTail))};
}

std::string BailingMoe() {
  return Expand(absl::StrCat(R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|)", kWord, R"(\p{N}|)",
                             kSymbols, R"([SPACE]*[\r\n]|[SPACE]+(?![^SPACE])|[SPACE]+)"));
}

// One set of rules and its names.
struct Entry {
  std::vector<absl::string_view> names;
  PreTokenizerRules rules;
};

std::vector<Entry> AllRules() {
  std::vector<Entry> all;
  all.push_back({{"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"},
                 {{Qwen2(R"(\p{N}{1,3})")}, /*ignore_merges=*/true, /*add_bos=*/true}});
  all.push_back({{"glm4", "chatglm-bpe"}, {{Qwen2(R"(\p{N}{1,3})")}, /*ignore_merges=*/true}});
  all.push_back({{"qwen2", "deepseek-r1-qwen"}, {{Qwen2(R"(\p{N})")}}});
  all.push_back({{"qwen35"}, {{Qwen35()}}});
  all.push_back({{"gpt-2", "phi-2", "mpt", "olmo"}, {{Gpt2()}}});
  all.push_back({{"smollm", "starcoder", "refact", "command-r"}, {{R"(\p{N})", Gpt2()}}});
  all.push_back({{"tekken"}, {{Tekken()}, /*ignore_merges=*/true, /*add_bos=*/true}});
  all.push_back({{"gpt-4o", "llama4"}, {{Gpt4o()}}});
  all.push_back({{"deepseek-v3"}, {DeepSeekV3()}});
  all.push_back({{"bailingmoe", "bailingmoe2", "llada-moe"}, {{BailingMoe()}}});
  all.push_back(
      {{"default", ""}, {{R"([\p{P}\$\+<=>\^~\|]+)", Gpt2(), R"(\p{N}+)", "[0-9][0-9][0-9]"}}});
  return all;
}

}  // namespace

absl::StatusOr<PreTokenizerRules> FindPreTokenizerRules(absl::string_view name) {
  std::vector<absl::string_view> known;
  for (Entry& entry : AllRules()) {
    for (const absl::string_view candidate : entry.names) {
      if (candidate == name) return std::move(entry.rules);
      if (!candidate.empty()) known.push_back(candidate);
    }
  }
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.ggml.pre '", name,
                   "' is not a pre-tokenizer that is known: ", absl::StrJoin(known, ", ")));
}

}  // namespace tidepool::engine
