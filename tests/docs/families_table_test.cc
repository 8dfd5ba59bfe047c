// The README's table of model families equals the registries of the loader. For every row, a test
// compares a model that transformers made with its reference.
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/checkpoint/hf/families.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/model/families.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tidepool::engine {
namespace {

constexpr char kBegin[] =
    "<!-- This table must equal the registry of families. //tests/docs:families_table_test checks "
    "it. -->\n";
constexpr char kEnd[] = "<!-- end of the registry -->\n";

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The tests that have a golden model, by general.architecture.
using TestsOf = std::map<std::string, std::set<std::string>>;

// Adds the golden models of a folder. A directory also has a model_type.
void AddModels(const std::string& folder, const std::string& test, TestsOf* tests,
               std::set<std::string>* model_types) {
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden/" + folder)) {
    const bool directory = entry.is_directory();
    if (!directory && entry.path().extension() != ".gguf") continue;
    const auto model = OpenCheckpoint(entry.path().string());
    ASSERT_TRUE(model.ok()) << model.status();
    (*tests)[std::string(*model->String("general.architecture"))].insert(test);
    if (!directory) continue;
    const auto config = nlohmann::json::parse(ReadText(entry.path() / "config.json"));
    const auto& text = config.contains("text_config") ? config["text_config"] : config;
    model_types->insert(text["model_type"].get<std::string>());
  }
}

std::string Code(absl::string_view text) { return absl::StrCat("`", text, "`"); }

std::string Table(const TestsOf& tests) {
  std::string table =
      "| models | GGUF architecture | `model_type` in config.json | compared with transformers by "
      "|\n|---|---|---|---|\n";
  for (const Family& family : Families()) {
    std::vector<std::string> types;
    for (const hf::HfFamily& row : hf::HfFamilies()) {
      if (row.architecture == family.architecture) types.push_back(Code(row.model_type));
    }
    std::vector<std::string> names;
    const auto found = tests.find(std::string(family.architecture));
    if (found != tests.end()) {
      for (const std::string& name : found->second) names.push_back(Code(name));
    }
    absl::StrAppend(&table, "| ", family.models, " | ", Code(family.architecture), " | ",
                    types.empty() ? "GGUF only" : absl::StrJoin(types, ", "), " | ",
                    absl::StrJoin(names, ", "), " |\n");
  }
  return table;
}

TEST(FamiliesTableTest, TheReadmeHasTheTableOfTheRegistries) {
  TestsOf tests;
  std::set<std::string> model_types;
  AddModels("tiny", "tiny_models_test", &tests, &model_types);
  AddModels("families", "family_models_test", &tests, &model_types);
  AddModels("hf", "hf_models_test", &tests, &model_types);

  const std::string readme = ReadText("README.md");
  const size_t begin = readme.find(kBegin);
  const size_t end = readme.find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const size_t first = begin + std::string(kBegin).size();
  const std::string table = Table(tests);
  EXPECT_EQ(readme.substr(first, end - first), table) << "put this table into README.md:\n"
                                                      << table;

  for (const Family& family : Families()) {
    EXPECT_TRUE(tests.contains(std::string(family.architecture)))
        << "no golden model of " << family.architecture;
  }
  for (const hf::HfFamily& row : hf::HfFamilies()) {
    EXPECT_TRUE(model_types.contains(std::string(row.model_type)))
        << "no golden directory of " << row.model_type;
  }
}

}  // namespace
}  // namespace tidepool::engine
