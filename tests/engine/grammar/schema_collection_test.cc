// Compiles the schemas of tests/golden/schemas and tries their instances, compact, spaced and
// indented. Nothing invalid may be accepted. Valid instances that are rejected, and schemas that
// are refused, must be exactly the ones in a file, which only gets shorter.
//
//   schema_collection_test SCHEMAS KNOWN_MISSES [--renew]
#include <fstream>
#include <iostream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/grammar/compile.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/engine/grammar/grammar_cases.h"
#include "tests/engine/grammar/schema_checks.h"

namespace tidepool::engine::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMinSchemas = 500;
constexpr double kMinWhole = 0.88;  // of the schemas

// Returns whether the schema compiles, and its instances are accepted and rejected as they must be.
bool IsWhole(const Json& line, std::set<std::string>* misses) {
  const std::string name = line["name"].get<std::string>();
  const auto grammar = CompileGrammar(Schema(line["schema"].dump()), nullptr);
  if (!grammar.ok()) {
    misses->insert(absl::StrCat(name, " | refused: ", grammar.status().message()));
    return false;
  }
  bool whole = true;
  for (const Json& invalid : line["invalid"]) {
    for (const std::string& text : TextsOf(invalid["instance"])) {
      if (!Accepts(*grammar, text)) continue;
      ADD_FAILURE() << name << " accepts what is invalid because of "
                    << invalid["because"].get<std::string>() << ": " << text;
      whole = false;
    }
  }
  for (const Json& valid : line["valid"]) {
    for (const std::string& text : TextsOf(valid)) {
      if (Accepts(*grammar, text)) continue;
      misses->insert(absl::StrCat(name, " | rejected: ", text));
      whole = false;
    }
  }
  return whole;
}

TEST(SchemaCollectionTest, AcceptsNothingInvalidAndMissesOnlyKnownCases) {
  int schemas = 0, whole = 0;
  std::set<std::string> misses;
  std::ifstream stream(arguments.collection);
  for (std::string text; std::getline(stream, text);) {
    ++schemas;
    whole += static_cast<int>(IsWhole(Json::parse(text), &misses));
  }
  std::cout << whole << " of " << schemas << " schemas are whole\n";
  EXPECT_GE(schemas, kMinSchemas);
  EXPECT_GE(whole, kMinWhole * schemas);
  CompareWithKnownMisses(misses);
}

}  // namespace
}  // namespace tidepool::engine::grammar

int main(int argc, char** argv) { return tidepool::engine::grammar::RunCollectionTest(argc, argv); }
