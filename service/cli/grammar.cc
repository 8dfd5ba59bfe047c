// grammar: compiles constraints for output and checks texts against them, without a model's
// weights.
#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/matcher.h"
#include "engine/tokenizer/load_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/base/status_macros.h"
#include "service/base/files.h"
#include "service/cli/commands.h"

namespace tidepool::service {
namespace {

using engine::grammar::Grammar;
using engine::grammar::GrammarKind;
using engine::grammar::GrammarSource;
using engine::grammar::Matcher;
using engine::grammar::TokenMask;
using engine::grammar::TokenTrie;

// One grammar and the texts to check against it.
struct Case {
  GrammarSource source;
  std::vector<std::string> texts;
};

// The vocabulary of --model. Both are null without it.
struct Vocabulary {
  std::unique_ptr<engine::Tokenizer> tokenizer;
  std::shared_ptr<const TokenTrie> trie;
};

struct Result {
  absl::Status compiled;
  double compile_ms = 0;
  std::vector<bool> accepts;
  std::vector<std::optional<size_t>> fails_at;  // the first byte that is wrong or missing
  std::vector<double> mask_us;
};

using Clock = std::chrono::steady_clock;

double MicrosSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

absl::StatusOr<Vocabulary> LoadVocabulary(const std::string& path) {
  Vocabulary vocabulary;
  if (path.empty()) return vocabulary;
  ASSIGN_OR_RETURN(const engine::Checkpoint file, engine::OpenCheckpoint(path));
  ASSIGN_OR_RETURN(vocabulary.tokenizer, engine::LoadTokenizer(file));
  vocabulary.trie = std::make_shared<const TokenTrie>(*vocabulary.tokenizer);
  return vocabulary;
}

// Computes the mask before each token of `text`, and the one after the last.
absl::Status MeasureMasks(const std::shared_ptr<const Grammar>& grammar, const std::string& text,
                          const Vocabulary& vocabulary, std::vector<double>* mask_us) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                   vocabulary.tokenizer->Encode(text, engine::SpecialTokens::kAsText,
                                                engine::AddBos::kContinue));
  Matcher matcher(grammar, vocabulary.trie);
  TokenMask mask(vocabulary.trie->vocab_size());
  for (size_t i = 0; i <= ids.size(); ++i) {
    const Clock::time_point begin = Clock::now();
    matcher.FillMask(&mask);
    mask_us->push_back(MicrosSince(begin));
    if (i < ids.size() && !matcher.AcceptToken(ids[i])) break;
  }
  return absl::OkStatus();
}

Result Check(const Case& one, const Vocabulary& vocabulary) {
  Result result;
  const Clock::time_point begin = Clock::now();
  const auto grammar = engine::grammar::CompileGrammar(one.source, vocabulary.tokenizer.get());
  result.compile_ms = MicrosSince(begin) / 1000;
  result.compiled = grammar.status();
  if (!grammar.ok()) return result;
  for (const std::string& text : one.texts) {
    Matcher matcher(*grammar, nullptr);
    const size_t size = matcher.AcceptText(text);
    const bool accepts = size == text.size() && matcher.accepts();
    result.accepts.push_back(accepts);
    result.fails_at.push_back(accepts ? std::nullopt : std::optional<size_t>(size));
    if (vocabulary.trie == nullptr) continue;
    const absl::Status measured = MeasureMasks(*grammar, text, vocabulary, &result.mask_us);
    if (!measured.ok()) result.compiled = measured;
  }
  return result;
}

Json MaskJson(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&times](double share) {
    const auto index = static_cast<size_t>(share * static_cast<double>(times.size()));
    return times[std::min(index, times.size() - 1)];
  };
  const double sum = std::accumulate(times.begin(), times.end(), 0.0);
  return {{"avg", sum / static_cast<double>(times.size())},
          {"p50", at(0.5)},
          {"p99", at(0.99)},
          {"max", times.back()}};
}

Json ResultJson(const Result& result) {
  Json json = {{"compiled", result.compiled.ok()}};
  if (!result.compiled.ok()) json["error"] = std::string(result.compiled.message());
  json["accepts"] = result.accepts;
  json["fails_at"] = Json::array();
  for (const std::optional<size_t>& at : result.fails_at) {
    json["fails_at"].push_back(at.has_value() ? Json(*at) : Json());
  }
  json["compile_ms"] = result.compile_ms;
  if (!result.mask_us.empty()) json["mask_us"] = MaskJson(result.mask_us);
  return json;
}

// Reads one line of a batch: {"schema": ..., "texts": [...]}, or "regex", "grammar" or "choice".
absl::StatusOr<Case> ParseCase(absl::string_view line) {
  const Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("the line is not a JSON object");
  Case one;
  int kinds = 0;
  for (const auto& [key, value] : json.items()) {
    if (key == "schema") {
      one.source.kind = GrammarKind::kJsonSchema;
      one.source.text = value.dump();
      ++kinds;
    } else if ((key == "regex" || key == "grammar") && value.is_string()) {
      one.source.kind = key == "regex" ? GrammarKind::kRegex : GrammarKind::kGbnf;
      one.source.text = value.get<std::string>();
      ++kinds;
    } else if (key == "whitespace_pattern" && value.is_string()) {
      one.source.whitespace_pattern = value.get<std::string>();
    } else if (key == "coerce_one_of" && value.is_boolean()) {
      one.source.coerce_one_of = value.get<bool>();
    } else if ((key == "texts" || key == "choice") && value.is_array()) {
      std::vector<std::string>& list = key == "texts" ? one.texts : one.source.choices;
      for (const Json& text : value) {
        if (!text.is_string()) {
          return absl::InvalidArgumentError(absl::StrCat(key, " must be an array of strings"));
        }
        list.push_back(text.get<std::string>());
      }
      if (key == "texts") continue;
      one.source.kind = GrammarKind::kChoice;
      ++kinds;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown key, or wrong type of value: ", Shown(Json(key))));
    }
  }
  if (kinds == 1) return one;
  return absl::InvalidArgumentError("set exactly one of schema, regex, grammar and choice");
}

void PrintBatchRow(size_t line, const Result& result, Console* console) {
  if (!result.compiled.ok()) {
    console->Print(absl::StrFormat("%6d  refused: %s\n", line, OneLine(result.compiled.message())));
    return;
  }
  const auto accepted = std::count(result.accepts.begin(), result.accepts.end(), true);
  std::string row = absl::StrFormat("%6d  %4d of %4d  %9.3f", line, accepted, result.accepts.size(),
                                    result.compile_ms);
  if (!result.mask_us.empty()) {
    const Json masks = MaskJson(result.mask_us);
    absl::StrAppendFormat(&row, "  %9.1f %9.1f %9.1f %9.1f", masks["avg"].get<double>(),
                          masks["p50"].get<double>(), masks["p99"].get<double>(),
                          masks["max"].get<double>());
  }
  console->Print(row + "\n");
}

absl::Status RunBatch(const Config& config, const Vocabulary& vocabulary, Console* console) {
  ASSIGN_OR_RETURN(const std::string batch, ReadFile(config.grammar.batch, kMaxTextBytes));
  const bool to_json = config.output.format == OutputFormat::kJson;
  if (!to_json) {
    console->Print(absl::StrCat(
        "  line     accepted  compile ms",
        vocabulary.trie == nullptr ? "" : "   mask us: avg       p50       p99       max", "\n"));
  }
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(batch, '\n')) {
    ++number;
    if (line.empty()) continue;
    const absl::StatusOr<Case> one = ParseCase(line);
    Result result;
    if (one.ok()) {
      result = Check(*one, vocabulary);
    } else {
      result.compiled = one.status();
    }
    if (to_json) {
      console->PrintJson(ResultJson(result));
    } else {
      PrintBatchRow(number, result, console);
    }
    RETURN_IF_ERROR(console->out_status());
  }
  return console->out_status();
}

absl::StatusOr<Case> CaseOfFlags(const Config& config) {
  const GrammarFlags& flags = config.grammar;
  Case one;
  if (config.input.text.has_value()) one.texts.push_back(*config.input.text);
  if (flags.regex.has_value()) {
    one.source = {.kind = GrammarKind::kRegex, .text = *flags.regex};
  } else if (!flags.schema.empty()) {
    one.source.kind = GrammarKind::kJsonSchema;
    ASSIGN_OR_RETURN(one.source.text, ReadFile(flags.schema, kMaxTextBytes));
  } else {
    one.source.kind = GrammarKind::kGbnf;
    ASSIGN_OR_RETURN(one.source.text, ReadFile(flags.grammar, kMaxTextBytes));
  }
  return one;
}

std::string Report(const std::string& text, const Result& result) {
  std::string report = absl::StrFormat("compiled in %.3f ms\n", result.compile_ms);
  for (size_t i = 0; i < result.accepts.size(); ++i) {
    if (result.accepts[i]) {
      absl::StrAppend(&report, "the text is accepted\n");
    } else if (const size_t at = *result.fails_at[i]; at < text.size()) {
      const size_t begin = at > 40 ? at - 40 : 0;
      absl::StrAppend(&report, "the text is rejected at byte ", at, ": ",
                      OneLine(text.substr(begin, at - begin)), " [here] ",
                      OneLine(text.substr(at, 40)), "\n");
    } else {
      absl::StrAppend(&report, "the text is rejected: it is incomplete after byte ", at, "\n");
    }
  }
  if (!result.mask_us.empty()) {
    const Json masks = MaskJson(result.mask_us);
    absl::StrAppendFormat(
        &report, "masks: %d, avg %.1f us, p50 %.1f us, p99 %.1f us, max %.1f us\n",
        result.mask_us.size(), masks["avg"].get<double>(), masks["p50"].get<double>(),
        masks["p99"].get<double>(), masks["max"].get<double>());
  }
  return report;
}

}  // namespace

absl::Status RunGrammar(const Config& config, Console* console) {
  ASSIGN_OR_RETURN(const Vocabulary vocabulary, LoadVocabulary(config.model.path));
  if (!config.grammar.batch.empty()) return RunBatch(config, vocabulary, console);
  ASSIGN_OR_RETURN(const Case one, CaseOfFlags(config));
  const Result result = Check(one, vocabulary);
  if (config.output.format == OutputFormat::kJson) {
    console->PrintJson(ResultJson(result));
    RETURN_IF_ERROR(console->out_status());
    return result.compiled;
  }
  RETURN_IF_ERROR(result.compiled);
  console->Print(Report(config.input.text.value_or(""), result));
  return console->out_status();
}

}  // namespace tidepool::service
