// Compares samplers with llama.cpp's and transformers'. tests/golden/make_samplers.py made the
// data.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/gguf.h"
#include "engine/sampling/candidate.h"
#include "engine/sampling/dry.h"
#include "engine/sampling/dry_breakers.h"
#include "engine/sampling/truncation.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_spec.h"
#include "kernels/base/check.h"
#include "nlohmann/json.hpp"

namespace tidepool::engine {
namespace {

std::string Path(const std::string& name) { return "tests/golden/" + name; }

const nlohmann::json& Golden() {
  static const auto* golden = [] {
    std::ifstream file(Path("samplers.json"));
    return new nlohmann::json(nlohmann::json::parse(file));
  }();
  return *golden;
}

struct Row {
  std::vector<float> logits;
  float best = 0;
  std::vector<Candidate> candidates;  // all tokens, with weights
};

Row ReadRow(const nlohmann::json& golden_case) {
  Row row;
  for (const auto& value : Golden()["rows"][golden_case["row"].get<size_t>()]) {
    row.logits.push_back(value.get<float>() / Golden()["scale"].get<float>());
  }
  row.best = *std::max_element(row.logits.begin(), row.logits.end());
  for (size_t i = 0; i < row.logits.size(); ++i) {
    row.candidates.push_back({std::exp(row.logits[i] - row.best), static_cast<int32_t>(i)});
  }
  return row;
}

std::vector<int32_t> Ids(const std::vector<Candidate>& candidates) {
  std::vector<int32_t> ids;
  for (const Candidate& candidate : candidates) ids.push_back(candidate.id);
  return ids;
}

TEST(GoldenSamplersTest, TopNSigma) {
  EXPECT_GE(Golden()["top_n_sigma"].size(), 20u);
  for (const auto& one : Golden()["top_n_sigma"]) {
    Row row = ReadRow(one);
    KeepTopNSigma(row.logits, row.best, one["n"].get<float>(), &row.candidates);
    EXPECT_EQ(Ids(row.candidates), one["kept"].get<std::vector<int32_t>>()) << one.dump();
  }
}

TEST(GoldenSamplersTest, TypicalP) {
  EXPECT_GE(Golden()["typical_p"].size(), 30u);
  std::vector<float> scratch;
  for (const auto& one : Golden()["typical_p"]) {
    Row row = ReadRow(one);
    KeepTypical({.logits = row.logits, .best = row.best}, one["p"].get<float>(), &row.candidates,
                &scratch);
    EXPECT_EQ(Ids(row.candidates), one["kept"].get<std::vector<int32_t>>()) << one.dump();
  }
}

TEST(GoldenSamplersTest, Xtc) {
  EXPECT_GE(Golden()["xtc"].size(), 30u);
  for (const auto& one : Golden()["xtc"]) {
    Row row = ReadRow(one);
    ExcludeTopChoices(one["threshold"].get<float>(), &row.candidates);
    EXPECT_EQ(Ids(row.candidates), one["kept"].get<std::vector<int32_t>>()) << one.dump();
  }
}

std::unique_ptr<Tokenizer> OpenTokenizer() {
  auto file = GgufFile::Open(Path("tokenizers/bytes.gguf"));
  CHECK(file.ok()) << file.status().ToString();
  auto spec = ReadTokenizerSpec(*file);
  CHECK(spec.ok()) << spec.status().ToString();
  auto tokenizer = Tokenizer::Create(*std::move(spec));
  CHECK(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

TEST(GoldenSamplersTest, Dry) {
  EXPECT_GE(Golden()["dry"].size(), 60u);
  const auto tokenizer = OpenTokenizer();
  DryBreakerCache cache(tokenizer.get());
  DryPenalty penalty;
  int penalized = 0;
  for (const auto& one : Golden()["dry"]) {
    const SamplingParams params = {
        .dry_multiplier = one["multiplier"].get<float>(),
        .dry_base = one["base"].get<float>(),
        .dry_allowed_length = one["allowed_length"].get<int32_t>(),
        .dry_penalty_last_n = one["penalty_last_n"].get<int32_t>(),
        .dry_sequence_breakers = one["breakers"].get<std::vector<std::string>>(),
    };
    const auto tokens = one["tokens"].get<std::vector<int32_t>>();
    DryHistory history(cache.Get(params.dry_sequence_breakers).value());
    for (const int32_t token : tokens) history.Add(token);
    std::vector<float> logits(tokenizer->vocab_size());
    penalty.Apply(params, history, tokens, absl::MakeSpan(logits));
    for (size_t id = 0; id < logits.size(); ++id) {
      const auto found = one["penalties"].find(absl::StrCat(id));
      const double expected = found == one["penalties"].end() ? 0 : found->get<double>();
      penalized += expected != 0;
      EXPECT_NEAR(-logits[id], expected, 1e-4 + 1e-4 * expected) << id << " in " << one.dump();
    }
  }
  EXPECT_GE(penalized, 120);
}

}  // namespace
}  // namespace tidepool::engine
