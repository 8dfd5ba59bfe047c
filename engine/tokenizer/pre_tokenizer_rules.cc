// The regular expressions of byte-level vocabularies, by the names that GGUF uses.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine {
namespace {

// The characters with Unicode's property White_Space, for use inside brackets. PCRE2's own \s also
// matches U+180E. That character is not a space since Unicode 6.3, and the original tokenizers do
// not treat it as a space.
constexpr absl::string_view kSpace =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Replaces SPACE in a pattern by the characters of kSpace.
std::string Expand(absl::string_view pattern) {
  return absl::StrReplaceAll(pattern, {{"SPACE", kSpace}});
}

constexpr absl::string_view kAnyCaseContraction = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|)";
constexpr absl::string_view kContraction = R"('s|'t|'re|'ve|'m|'ll|'d|)";
constexpr absl::string_view kWord = R"([^\r\n\p{L}\p{N}]?\p{L}+|)";
constexpr absl::string_view kSymbols = R"( ?[^SPACE\p{L}\p{N}]+[\r\n]*|)";
constexpr absl::string_view kSpaceTail = R"([SPACE]*[\r\n]+|[SPACE]+(?![^SPACE])|[SPACE]+)";

// These patterns also split a word before an upper-case letter that follows a lower-case one:
// "helloWorld" becomes "hello" and "World" (tekken, GPT-4o).
constexpr absl::string_view kCasedWordLow =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)";
constexpr absl::string_view kCasedWordHigh =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)";
constexpr absl::string_view kCasedTail =
    R"( ?[^SPACE\p{L}\p{N}]+[\r\n/]*|[SPACE]*[\r\n]+|[SPACE]+(?![^SPACE])|[SPACE]+)";

// Runs of letters, symbols and spaces, in DeepSeek's later models.
constexpr absl::string_view kDeepSeekTail =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
    R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)";
constexpr absl::string_view kHanAndKana =
    R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
// In DeepSeek's earlier models: Han, Hangul, and, by a mistake in the original, three blocks of
// scripts of South Asia and Africa.
constexpr absl::string_view kDeepSeekHan =
    R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";

// The cased letters of Unicode, as DeepSeek LLM lists them.
constexpr absl::string_view kCasedLetters =
    R"(A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293})"
    R"(\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a})"
    R"(\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556})"
    R"(\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf})"
    R"(\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d})"
    R"(\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-)"
    R"(\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc})"
    R"(\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc})"
    R"(\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128})"
    R"(\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e})"
    R"(\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3})"
    R"(\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e})"
    R"(\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a})"
    R"(\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-)"
    R"(\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943})";

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
  return {R"(\p{N}{1,3})", std::string(kHanAndKana),
          Expand(absl::StrCat(kDeepSeekTail, kSpaceTail))};
}

std::vector<std::string> DeepSeekLlm() {
  return {
      "[\r\n]",
      Expand(absl::StrCat("[SPACE]?[", kCasedLetters, "]+")),
      Expand(
          R"([SPACE]?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)"),
      Expand("[SPACE]+$"),
      std::string(kDeepSeekHan),
      R"(\p{N}+)"};
}

std::vector<std::string> DeepSeekCoder() {
  return {"[\r\n]", Expand(R"([SPACE]?\p{L}+)"), Expand(R"([SPACE]?\p{P}+)"),
          std::string(kDeepSeekHan), R"(\p{N})"};
}

// Characters of the script Han are separate words. (Characters that several scripts use are not
// included.) The pattern cannot say "of these categories and not Han", so it says "neither Han nor
// of the other categories". A lookahead in a group would also work, but repeating such a group
// needs stack memory for each character of a word. Repeating a class needs none.
std::string KimiK2() {
  constexpr absl::string_view kSuffix = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)";
  constexpr absl::string_view kHigh = R"([^\p{sc:Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}])";
  constexpr absl::string_view kLow = R"([^\p{sc:Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}])";
  constexpr absl::string_view kBefore = R"([^\r\n\p{L}\p{N}]?)";
  return Expand(absl::StrCat(R"(\p{sc:Han}+|)", kBefore, kHigh, "*", kLow, "+", kSuffix, kBefore,
                             kHigh, "+", kLow, "*", kSuffix, R"(\p{N}{1,3}|)", kSymbols,
                             kSpaceTail));
}

std::vector<std::string> Youtu() {
  constexpr absl::string_view kSuffix = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)";
  return {
      absl::StrCat(
          R"([\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+|)",
          R"([\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c})",
          R"(\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+|[\x{3105}-\x{312f}]+|)", kHanAndKana),
      Expand(
          absl::StrCat(kCasedWordLow, kSuffix, kCasedWordHigh, kSuffix, R"(\p{N}|)", kCasedTail))};
}

// Splits runs of spaces into runs whose lengths are powers of two.
std::string Jais2() {
  std::string pattern =
      absl::StrCat(kAnyCaseContraction, kWord, R"(\p{N}{1,3}|)", kSymbols, R"([SPACE]*[\r\n]+|)");
  for (int size = 512; size >= 4; size /= 2) {
    absl::StrAppend(&pattern, "[SPACE]{", size, "}(?![^SPACE])|");
  }
  return Expand(absl::StrCat(pattern, "[SPACE]{1,2}(?![^SPACE])|[SPACE]"));
}

std::string SeedCoder() {
  return Expand(absl::StrCat(kAnyCaseContraction, kWord, R"(\p{N}|)",
                             R"( ?[^SPACE\p{L}\p{N}\r\n]+|)", kSpaceTail));
}

// Matches everything up to the punctuation that ends a sentence (BLOOM).
std::string Bloom() {
  return Expand(R"( ?[^(SPACE|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)");
}

std::string BailingMoe() {
  return Expand(absl::StrCat(R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|)", kWord, R"(\p{N}|)",
                             kSymbols, R"([SPACE]*[\r\n]|[SPACE]+(?![^SPACE])|[SPACE]+)"));
}

// One set of rules, and the names that it has.
struct Entry {
  std::vector<absl::string_view> names;
  PreTokenizerRules rules;
};

std::vector<Entry> AllRules() {
  std::vector<Entry> all;
  all.push_back({{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
                  "lfm2", "jina-v5-nano"},
                 {{Qwen2(R"(\p{N}{1,3})")}, /*ignore_merges=*/true, /*add_bos=*/true}});
  // Later files of GLM-4 have the name "glm4". If a whole word is a token, they use it without
  // merging. Earlier files have the name "chatglm-bpe" and always merge. llama.cpp treats both in
  // the same way. The tokens are equal either way if the file has enough merges to build every
  // token, and llama.cpp's converters write such files.
  all.push_back({{"glm4", "glm5"}, {{Qwen2(R"(\p{N}{1,3})")}, /*ignore_merges=*/true}});
  all.push_back({{"chatglm-bpe", "smaug-bpe", "dbrx"}, {{Qwen2(R"(\p{N}{1,3})")}}});
  all.push_back({{"jais-2"}, {{Jais2()}}});
  all.push_back({{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
                  "solar-open", "grok-2"},
                 {{Qwen2(R"(\p{N})")}}});
  all.push_back({{"qwen35"}, {{Qwen35()}}});
  all.push_back({{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4",
                  "gigachat", "a.x-4.0", "mellum", "modern-bert", "jina-es", "jina-de",
                  "jina-v2-es", "jina-v2-de"},
                 {{Gpt2()}}});
  all.push_back({{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
                  "mellum2"},
                 {{R"(\p{N})", Gpt2()}}});
  all.push_back({{"tekken"}, {{Tekken()}, /*ignore_merges=*/true, /*add_bos=*/true}});
  all.push_back({{"gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"}, {{Gpt4o()}}});
  all.push_back({{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {DeepSeekV3()}});
  all.push_back({{"deepseek-llm"}, {DeepSeekLlm()}});
  all.push_back({{"deepseek-coder"}, {DeepSeekCoder()}});
  all.push_back({{"kimi-k2"}, {{KimiK2()}}});
  all.push_back({{"youtu"}, {Youtu(), /*ignore_merges=*/true}});
  all.push_back({{"bailingmoe", "bailingmoe2", "llada-moe"}, {{BailingMoe()}}});
  all.push_back({{"seed-coder"}, {{SeedCoder()}}});
  all.push_back({{"poro-chat", "bloom", "gpt3-finnish"}, {{Bloom()}}});
  all.push_back({{"viking"}, {{Bloom(), R"(\p{N})"}}});
  all.push_back({{"falcon"}, {{R"([\p{P}\$\+<=>\^~\|`]+)", Gpt2(), "[0-9][0-9][0-9]"}}});
  all.push_back(
      {{"default", ""}, {{R"([\p{P}\$\+<=>\^~\|]+)", Gpt2(), R"(\p{N}+)", "[0-9][0-9][0-9]"}}});
  return all;
}

}  // namespace

absl::StatusOr<PreTokenizerRules> FindPreTokenizerRules(absl::string_view name) {
  for (Entry& entry : AllRules()) {
    for (const absl::string_view candidate : entry.names) {
      if (candidate == name) return std::move(entry.rules);
    }
  }
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.ggml.pre ", base::Quoted(name),
                   " is not a known pre-tokenizer; convert the model with one of these: ",
                   absl::StrJoin(KnownPreTokenizers(), ", ")));
}

std::vector<std::string> KnownPreTokenizers() {
  std::vector<std::string> known;
  for (const Entry& entry : AllRules()) {
    for (const absl::string_view name : entry.names) {
      if (!name.empty()) known.emplace_back(name);
    }
  }
  return known;
}

}  // namespace tidepool::engine
