#include "engine/checkpoint/hf/steps.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

// KnownSteps stores each step as a string: a regular expression, kDigits or kGpt2.
constexpr absl::string_view kMark = "\xE2\x96\x81";  // "▁"
constexpr absl::string_view kDigits =
    "\x01"
    "digit";
constexpr absl::string_view kGpt2 =
    "\x01"
    "gpt2";  // means ByteLevel with its built-in expression

constexpr absl::string_view kAnyCase = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
constexpr absl::string_view kSpaceTail = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kWord = R"([^\r\n\p{L}\p{N}]?\p{L}+)";
constexpr absl::string_view kSymbols = R"( ?[^\s\p{L}\p{N}]+[\r\n]*)";
constexpr absl::string_view kLow =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)";
constexpr absl::string_view kHigh =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)";
constexpr absl::string_view kCasedSymbols = R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)";
constexpr absl::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
    R"(\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr absl::string_view kHanAndKana =
    "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+";
constexpr absl::string_view kDeepSeek =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*)";

struct KnownSteps {
  absl::string_view pre;  // value of tokenizer.ggml.pre
  bool ignore_merges;
  std::vector<std::string> steps;
};

std::string Any(std::initializer_list<absl::string_view> alternatives) {
  return absl::StrJoin(alternatives, "|");
}

std::vector<KnownSteps> AllKnownSteps() {
  const std::string llama3 = Any({kAnyCase, kWord, R"(\p{N}{1,3})", kSymbols, kSpaceTail});
  const std::string optional_case = absl::StrCat(kAnyCase, "?");
  const std::string gpt2(kGpt2);
  return {
      {"gpt-2", false, {gpt2}},
      {"gpt-2", false, {std::string(kGpt2Regex)}},
      {"smollm", false, {std::string(kDigits), gpt2}},
      {"llama-bpe", true, {llama3}},
      {"smaug-bpe", false, {llama3}},
      {"qwen2", false, {Any({kAnyCase, kWord, R"(\p{N})", kSymbols, kSpaceTail})}},
      {"qwen35",
       false,
       {Any({kAnyCase, R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})",
             R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)", kSpaceTail})}},
      {"tekken", true, {Any({kLow, kHigh, R"(\p{N})", kCasedSymbols, kSpaceTail})}},
      {"gpt-4o",
       false,
       {Any({absl::StrCat(kLow, optional_case), absl::StrCat(kHigh, optional_case), R"(\p{N}{1,3})",
             kCasedSymbols, kSpaceTail})}},
      {"bailingmoe", false, {std::string(kBailing)}},
      {"seed-coder",
       false,
       {Any({kAnyCase, kWord, R"(\p{N}{1})", R"( ?[^\s\p{L}\p{N}\r\n]+)", kSpaceTail})}},
      {"deepseek-v3",
       false,
       {R"(\p{N}{1,3})", std::string(kHanAndKana), Any({kDeepSeek, kSpaceTail})}},
  };
}

absl::Status AppendFlat(const std::string& path, absl::string_view key, const Json* step,
                        std::vector<const Json*>* steps) {
  if (step == nullptr || step->is_null()) return absl::OkStatus();
  const auto wrong = [&](absl::string_view expected) {
    return FileError(path, key, absl::StrCat(Shown(*step), ", expected ", expected));
  };
  if (!step->is_object()) return wrong("an object with a type");
  const auto type = step->find("type");
  if (type == step->end() || !type->is_string()) return wrong("an object with a type");
  if (*type != "Sequence") {
    steps->push_back(step);
    return absl::OkStatus();
  }
  for (const absl::string_view name : {"normalizers", "pretokenizers", "processors", "decoders"}) {
    const auto list = step->find(std::string(name));
    if (list == step->end()) continue;
    if (!list->is_array()) return wrong("a list of steps");
    for (const Json& inner : *list) RETURN_IF_ERROR(AppendFlat(path, key, &inner, steps));
  }
  return absl::OkStatus();
}

absl::Status UnknownStep(const std::string& path, const Json& step) {
  return FileUnsupported(path, "pre_tokenizer",
                         absl::StrCat(Shown(step), " is not supported in a byte-level tokenizer"));
}

// Returns the regular expression of a Split that keeps every match as a piece. Returns "" for any
// other Split.
absl::StatusOr<std::string> SplitPattern(const std::string& path, const Json& step) {
  const JsonMembers split(path, step);
  const Json* pattern = split.Find("pattern");
  ASSIGN_OR_RETURN(const std::string behavior, split.StringOr("behavior", "Isolated"));
  ASSIGN_OR_RETURN(const bool invert, split.BoolOr("invert", false));
  // Both variants keep each match as a piece. They treat the text between matches differently, but
  // the known expressions leave no text between matches.
  const bool keeps = (behavior == "Isolated" && !invert) || (behavior == "Removed" && invert);
  if (!keeps || pattern == nullptr || !pattern->is_object()) return std::string();
  const auto regex = pattern->find("Regex");
  if (regex == pattern->end() || !regex->is_string()) return std::string();
  return regex->get<std::string>();
}

// Returns the token that a piece of a TemplateProcessing names, or nullopt if the piece is the
// placeholder for the text.
absl::StatusOr<std::optional<std::string>> TemplateToken(const std::string& path,
                                                         const Json& piece) {
  if (piece.is_object() && piece.contains("Sequence")) return std::optional<std::string>();
  if (piece.is_object()) {
    const auto token = piece.find("SpecialToken");
    if (token != piece.end() && token->is_object()) {
      const auto id = token->find("id");
      if (id != token->end() && id->is_string()) {
        return std::optional<std::string>(id->get<std::string>());
      }
    }
  }
  return FileError(path, "post_processor",
                   absl::StrCat(Shown(piece), ", expected a Sequence or a SpecialToken"));
}

absl::Status ReadTemplate(const std::string& path, const Json& step, AddedAround* around) {
  const auto single = step.find("single");
  if (single == step.end() || !single->is_array()) {
    return FileError(path, "post_processor", "has no \"single\", expected a list");
  }
  bool after_text = false;
  for (const Json& piece : *single) {
    ASSIGN_OR_RETURN(std::optional<std::string> token, TemplateToken(path, piece));
    if (!token.has_value()) {
      after_text = true;
      continue;
    }
    std::optional<std::string>& place = after_text ? around->after : around->before;
    if (place.has_value()) {
      return FileUnsupported(path, "post_processor",
                             absl::StrCat("two tokens on one side of a text (", *place, " and ",
                                          *token, ") are not supported"));
    }
    place = std::move(token);
  }
  return absl::OkStatus();
}

absl::Status ReadMetaspace(const JsonMembers& step, SpaceRules* rules) {
  ASSIGN_OR_RETURN(const std::string mark, step.StringOr("replacement", kMark));
  if (mark != kMark) {
    return step.Unsupported("pre_tokenizer",
                            absl::StrCat("replacement ", Shown(Json(mark)), " is not supported"));
  }
  // Older files have add_prefix_space instead of prepend_scheme.
  ASSIGN_OR_RETURN(const bool prefix, step.BoolOr("add_prefix_space", true));
  ASSIGN_OR_RETURN(const std::string scheme,
                   step.StringOr("prepend_scheme", prefix ? "always" : "never"));
  ASSIGN_OR_RETURN(rules->split, step.BoolOr("split", true));
  if (scheme == "never") return absl::OkStatus();
  rules->once = true;
  if (scheme != "always" && scheme != "first") {
    return step.Error("pre_tokenizer", absl::StrCat("prepend_scheme ", Shown(Json(scheme)),
                                                    ", expected always, first or never"));
  }
  rules->prefix = scheme == "first" ? SpaceRules::Prefix::kFirst : SpaceRules::Prefix::kAlways;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<const Json*>> Flatten(const std::string& path, absl::string_view key,
                                                 const Json* step) {
  std::vector<const Json*> steps;
  RETURN_IF_ERROR(AppendFlat(path, key, step, &steps));
  return steps;
}

absl::string_view TypeOfStep(const Json& step) {
  return step.find("type")->get_ref<const std::string&>();
}

absl::StatusOr<std::string> FindPreTokenizer(const std::string& path,
                                             const std::vector<const Json*>& steps,
                                             bool ignore_merges) {
  std::vector<std::string> words;
  for (const Json* step : steps) {
    const JsonMembers members(path, *step);
    const absl::string_view type = TypeOfStep(*step);
    if (type == "Split") {
      ASSIGN_OR_RETURN(std::string pattern, SplitPattern(path, *step));
      if (pattern.empty() || pattern[0] == '\x01') return UnknownStep(path, *step);
      words.push_back(std::move(pattern));
    } else if (type == "Digits") {
      ASSIGN_OR_RETURN(const bool single, members.BoolOr("individual_digits", false));
      if (!single) return UnknownStep(path, *step);
      words.emplace_back(kDigits);
    } else if (type == "ByteLevel") {
      ASSIGN_OR_RETURN(const bool space, members.BoolOr("add_prefix_space", true));
      ASSIGN_OR_RETURN(const bool regex, members.BoolOr("use_regex", true));
      if (space) return UnknownStep(path, *step);
      if (regex) words.emplace_back(kGpt2);
    } else {
      return UnknownStep(path, *step);
    }
  }
  for (const KnownSteps& known : AllKnownSteps()) {
    if (known.ignore_merges == ignore_merges &&
        std::equal(known.steps.begin(), known.steps.end(), words.begin(), words.end())) {
      return std::string(known.pre);
    }
  }
  std::string shown;
  for (const std::string& word : words) absl::StrAppend(&shown, shown.empty() ? "" : ", ", word);
  return FileUnsupported(path, "pre_tokenizer",
                         absl::StrCat(Shown(Json(shown)), ignore_merges ? " with" : " without",
                                      " ignore_merges is not one of the published pre-tokenizers "
                                      "that are supported"));
}

absl::StatusOr<SpaceRules> ReadSpaceRules(const std::string& path,
                                          const std::vector<const Json*>& normalizers,
                                          const std::vector<const Json*>& pre_tokenizers) {
  SpaceRules rules;
  bool replaced = false;
  const auto unknown = [&path](absl::string_view key, const Json& step) {
    return FileUnsupported(path, key,
                           absl::StrCat(Shown(step),
                                        " is not supported in a tokenizer without "
                                        "ByteLevel"));
  };
  for (const Json* step : normalizers) {
    const JsonMembers members(path, *step);
    if (TypeOfStep(*step) == "Prepend" && (*step).value("prepend", Json()) == Json(kMark) &&
        !replaced) {
      rules.prefix = SpaceRules::Prefix::kAlways;
    } else if (TypeOfStep(*step) == "Replace" && members.Find("pattern") != nullptr &&
               *members.Find("pattern") == Json{{"String", " "}} &&
               (*step).value("content", Json()) == Json(kMark)) {
      replaced = true;
    } else if (TypeOfStep(*step) == "NFC" || TypeOfStep(*step) == "NFKC") {
      rules.form = TypeOfStep(*step) == "NFC" ? "nfc" : "nfkc";
    } else {
      return unknown("normalizer", *step);
    }
  }
  for (const Json* step : pre_tokenizers) {
    // This Split has no effect because an earlier step already replaced all spaces.
    if (TypeOfStep(*step) == "Split" && replaced &&
        (*step).value("pattern", Json()) == Json{{"String", " "}}) {
      continue;
    }
    if (TypeOfStep(*step) != "Metaspace") return unknown("pre_tokenizer", *step);
    RETURN_IF_ERROR(ReadMetaspace(JsonMembers(path, *step), &rules));
    replaced = true;
  }
  if (replaced) return rules;
  return FileUnsupported(path, "pre_tokenizer",
                         "none of ByteLevel, Metaspace and a Replace of spaces is there; other "
                         "tokenizers are not supported");
}

absl::StatusOr<AddedAround> ReadPostProcessor(const std::string& path, const Json* processor) {
  AddedAround around;
  ASSIGN_OR_RETURN(const std::vector<const Json*> steps,
                   Flatten(path, "post_processor", processor));
  for (const Json* step : steps) {
    if (TypeOfStep(*step) == "ByteLevel") continue;  // it only affects offsets
    if (TypeOfStep(*step) != "TemplateProcessing") {
      return FileUnsupported(path, "post_processor",
                             absl::StrCat(Shown(*step), " is not supported"));
    }
    RETURN_IF_ERROR(ReadTemplate(path, *step, &around));
  }
  return around;
}

}  // namespace tidepool::engine::hf
