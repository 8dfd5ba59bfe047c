// Computes and times masks for programs that compare them with other engines.
//
// Reads JSON lines. The first is the vocabulary: {"tokens": [hexadecimal bytes, "" for control
// tokens], "stop": [ids]}. Each other line is {"schema": ..., "walks": [[ids]], "masks": bool},
// with a walk for each output. It may also have "whitespace_pattern". The program prints one line
// for it: {"compiled", "error", "compile_us", "walks": [{"mask_us", "accept_us", "masks",
// "accepted"}]}, with a mask before each token, and after the last one. A mask is hexadecimal
// bytes, in which the lowest bit of the first byte is token 0.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/matcher.h"
#include "kernels/base/background_thread.h"
#include "nlohmann/json.hpp"

namespace tidepool::engine::grammar {
namespace {

using Json = nlohmann::ordered_json;
// Returns the CPU time of this thread in microseconds, so that other processes do not count.
double Now() { return absl::ToDoubleMicroseconds(base::ThreadCpuTime()); }

std::shared_ptr<const TokenTrie> ReadVocabulary(const Json& line) {
  std::vector<std::string> texts;
  for (const Json& token : line["tokens"]) {
    texts.push_back(absl::HexStringToBytes(token.get<std::string>()));
  }
  const auto stop = line["stop"].get<std::vector<int32_t>>();
  return std::make_shared<const TokenTrie>(texts, stop);
}

std::string MaskText(const TokenMask& mask) {
  std::string bytes;
  for (const uint64_t word : mask.words()) {
    for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(word >> shift));
  }
  return absl::BytesToHexString(bytes);
}

Json RunWalk(const Json& ids, bool with_masks, Matcher* matcher, TokenMask* mask) {
  Json result = {
      {"mask_us", Json::array()}, {"accept_us", Json::array()}, {"masks", Json::array()}};
  size_t at = 0;
  for (bool goes = true; goes; ++at) {
    double begin = Now();
    matcher->FillMask(mask);
    result["mask_us"].push_back(Now() - begin);
    if (with_masks) result["masks"].push_back(MaskText(*mask));
    if (at == ids.size()) break;
    const auto id = ids[at].get<int32_t>();
    begin = Now();
    goes = matcher->AcceptToken(id);
    result["accept_us"].push_back(Now() - begin);
  }
  result["accepted"] = at == ids.size();
  return result;
}

Json Answer(const Json& line, const std::shared_ptr<const TokenTrie>& trie) {
  GrammarSource source = {.kind = GrammarKind::kJsonSchema, .text = line["schema"].dump()};
  if (line.contains("whitespace_pattern")) {
    source.whitespace_pattern = line["whitespace_pattern"].get<std::string>();
  }
  const double begin = Now();
  const auto grammar = CompileGrammar(source, nullptr);
  Json answer = {{"compiled", grammar.ok()}, {"compile_us", Now() - begin}};
  if (!grammar.ok()) {
    answer["error"] = std::string(grammar.status().message());
    return answer;
  }
  TokenMask mask(trie->vocab_size());
  answer["walks"] = Json::array();
  for (const Json& walk : line["walks"]) {
    Matcher matcher(*grammar, trie);
    answer["walks"].push_back(RunWalk(walk, line["masks"].get<bool>(), &matcher, &mask));
  }
  return answer;
}

int Run() {
  std::string text;
  if (!std::getline(std::cin, text)) return 2;
  const std::shared_ptr<const TokenTrie> trie = ReadVocabulary(Json::parse(text));
  while (std::getline(std::cin, text)) {
    std::cout << Answer(Json::parse(text), trie).dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace tidepool::engine::grammar

// NOLINTNEXTLINE(bugprone-exception-escape): its caller sends valid JSON, and sees it end otherwise
int main() { return tidepool::engine::grammar::Run(); }
