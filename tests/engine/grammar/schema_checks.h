// Functions that all tests of collections of schemas use.
#ifndef TIDEPOOL_TESTS_ENGINE_GRAMMAR_SCHEMA_CHECKS_H_
#define TIDEPOOL_TESTS_ENGINE_GRAMMAR_SCHEMA_CHECKS_H_

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tidepool::engine::grammar {

// Returns the text of the value as Python's json.dumps writes it.
inline std::string Spaced(const nlohmann::ordered_json& value) {
  if (value.is_array()) {
    std::string text = "[";
    for (const auto& item : value) {
      absl::StrAppend(&text, text.size() > 1 ? ", " : "", Spaced(item));
    }
    return text + "]";
  }
  if (!value.is_object()) return value.dump(-1, ' ', /*ensure_ascii=*/true);
  std::string text = "{";
  for (const auto& [key, member] : value.items()) {
    absl::StrAppend(&text, text.size() > 1 ? ", " : "",
                    nlohmann::ordered_json(key).dump(-1, ' ', true), ": ", Spaced(member));
  }
  return text + "}";
}

// Returns the value's text in three forms: compact, spaced and indented.
inline std::vector<std::string> TextsOf(const nlohmann::ordered_json& value) {
  return {value.dump(), Spaced(value), value.dump(2)};
}

// The arguments of a test of a collection: COLLECTION KNOWN_MISSES [--renew].
struct CollectionArguments {
  std::string collection;  // a file or a folder
  std::string misses_file;
  bool renew = false;  // write the file of known misses
};
inline CollectionArguments arguments;  // NOLINT(runtime/string): set by RunCollectionTest

// The main function of a test of a collection.
inline int RunCollectionTest(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc < 3) return 2;
  arguments = {.collection = argv[1], .misses_file = argv[2], .renew = argc > 3};
  return RUN_ALL_TESTS();
}

// Expects that `misses` are exactly the known misses. With --renew, writes them to the file
// instead.
inline void CompareWithKnownMisses(const std::set<std::string>& misses) {
  const std::string& file = arguments.misses_file;
  std::set<std::string> lines, known;
  for (const std::string& miss : misses) lines.insert(absl::StrReplaceAll(miss, {{"\n", " "}}));
  if (arguments.renew) {
    std::ofstream stream(file);
    for (const std::string& line : lines) stream << line << "\n";
    return;
  }
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) known.insert(line);
  for (const std::string& line : lines) {
    EXPECT_TRUE(known.contains(line)) << "new: " << line;
  }
  for (const std::string& line : known) {
    EXPECT_TRUE(lines.contains(line)) << "passes now, remove it: " << line;
  }
}

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_TESTS_ENGINE_GRAMMAR_SCHEMA_CHECKS_H_
