// Runs the JSON Schema Test Suite. Each instance is tried compact, spaced and indented. Nothing
// invalid may be accepted. Valid instances that are rejected, and schemas that are refused, must be
// exactly the ones in known_misses.txt, which only gets shorter.
//
//   json_schema_suite_test SUITE_FOLDER KNOWN_MISSES [--renew]
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/grammar/compile.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/engine/grammar/grammar_cases.h"
#include "tests/engine/grammar/schema_checks.h"

namespace tidepool::engine::grammar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Totals {
  int tests = 0;
  int passed = 0;
  std::vector<std::string> false_accepts;
  std::set<std::string> misses;  // false rejects and refused schemas
};

void RunGroup(const std::string& file, const Json& group, Totals* totals) {
  const std::string name = absl::StrCat(file, " | ", group["description"].get<std::string>());
  const auto grammar =
      CompileGrammar({.kind = GrammarKind::kJsonSchema, .text = group["schema"].dump()}, nullptr);
  for (const Json& test : group["tests"]) {
    ++totals->tests;
    if (!grammar.ok()) {
      totals->misses.insert(absl::StrCat(name, " | refused: ", grammar.status().message()));
      continue;
    }
    const std::string what = absl::StrCat(name, " | ", test["description"].get<std::string>());
    const Json& data = test["data"];
    const bool valid = test["valid"].get<bool>();
    bool all = true, any = false;
    for (const std::string& text : TextsOf(data)) {
      const bool accepts = Accepts(*grammar, text);
      all &= accepts;
      any |= accepts;
    }
    if (any && !valid) totals->false_accepts.push_back(what);
    if (!all && valid) totals->misses.insert(absl::StrCat(what, " | rejected"));
    totals->passed += valid ? all : !any;
  }
}

Totals RunDraft(const std::string& draft) {
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(arguments.collection) / draft)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Totals totals;
  for (const fs::path& path : files) {
    std::ifstream stream(path);
    const Json groups = Json::parse(stream);
    const std::string file = path.lexically_relative(arguments.collection).string();
    for (const Json& group : groups) RunGroup(file, group, &totals);
  }
  return totals;
}

TEST(JsonSchemaSuiteTest, AcceptsNothingInvalidAndMissesOnlyKnownCases) {
  std::set<std::string> misses;
  for (const auto& [draft, bar] :
       std::map<std::string, int>{{"draft2020-12", 1100}, {"draft7", 900}}) {
    const Totals totals = RunDraft(draft);
    std::cout << draft << ": " << totals.passed << " of " << totals.tests << " pass\n";
    EXPECT_GE(totals.passed, bar) << draft;
    for (const std::string& wrong : totals.false_accepts) ADD_FAILURE() << "accepted: " << wrong;
    misses.insert(totals.misses.begin(), totals.misses.end());
  }
  CompareWithKnownMisses(misses);
}

}  // namespace
}  // namespace tidepool::engine::grammar

int main(int argc, char** argv) { return tidepool::engine::grammar::RunCollectionTest(argc, argv); }
