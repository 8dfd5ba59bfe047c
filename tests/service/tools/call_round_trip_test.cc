// Random texts of the grammar of calls, read by the response parser: every text has calls, and
// their arguments match the schemas.
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/token_trie.h"
#include "gtest/gtest.h"
#include "service/tools/call_grammar.h"
#include "service/tools/response_parser.h"

namespace tidepool::service {
namespace {

using engine::grammar::CompileGrammar;
using engine::grammar::Grammar;
using engine::grammar::GrammarIr;
using engine::grammar::GrammarKind;
using engine::grammar::Matcher;
using engine::grammar::ResponseTexts;
using engine::grammar::TokenMask;
using engine::grammar::TokenTrie;

constexpr char kOrder[] = R"({"type": "object", "properties": {
    "item": {"type": "string", "pattern": "^[A-Z<>/a-z]*$"},
    "note": {"type": ["string", "null"], "maxLength": 30},
    "text": {"type": "string", "maxLength": 30},
    "count": {"type": "integer", "minimum": 1},
    "price": {"type": ["number", "string"]},
    "size": {"enum": ["S", "M", "null", "1"]},
    "gift": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 3},
    "to": {"$ref": "#/$defs/place"}},
    "$defs": {"place": {"type": "object", "properties": {"street": {"type": "string"}},
                        "required": ["street"], "additionalProperties": false}},
    "required": ["item", "count"], "additionalProperties": false})";
constexpr char kPing[] = R"({"type": "object", "properties": {}, "additionalProperties": false})";

class CallRoundTripTest : public testing::Test {
 protected:
  CallRoundTripTest() {
    for (int byte = 0; byte < 256; ++byte) texts_.emplace_back(1, static_cast<char>(byte));
    texts_.emplace_back();
    const int32_t stop = 256;
    trie_ = std::make_shared<const TokenTrie>(texts_, absl::MakeConstSpan(&stop, 1));
    for (const auto& [name, schema] :
         std::map<std::string, std::string>{{"order", kOrder}, {"ping", kPing}}) {
      schemas_[name] =
          CompileGrammar({.kind = GrammarKind::kJsonSchema, .text = schema}, nullptr).value();
    }
    tools_ = absl::StrCat(
        R"([{"type": "function", "function": {"name": "order", "parameters": )", kOrder,
        R"(}}, {"type": "function", "function": {"name": "ping", "parameters": )", kPing, "}}]");
  }

  std::shared_ptr<const Grammar> Calls(v1::ToolSyntax syntax) {
    v1::ToolChoice choice;
    choice.set_mode(v1::ToolChoice::REQUIRED);
    const CallRules rules = RulesOf(tools_, choice, /*parallel=*/true).value();
    const ResponseTexts texts(nullptr, {});
    GrammarIr ir;
    CallGrammar calls(*FormatOf(syntax), rules, &texts, &ir);
    ir.set_start(calls.Emit().value());
    EXPECT_TRUE(ir.Finish().ok());
    return std::make_shared<const Grammar>(std::move(ir));
  }

  // Returns a random text, or "" if it would be too long.
  std::string RandomText(const std::shared_ptr<const Grammar>& grammar, std::mt19937* random) {
    Matcher matcher(grammar, trie_);
    TokenMask mask(trie_->vocab_size());
    std::string text;
    while (text.size() < 4000) {
      matcher.FillMask(&mask);
      if (mask.Test(256) && (mask.Count() == 1 || (*random)() % 4 == 0)) return text;
      mask.Reset(256);
      std::vector<int32_t> ids, likely;
      for (int32_t id = 0; id < 256; ++id) {
        if (!mask.Test(id)) continue;
        ids.push_back(id);
        if (std::string("\"<\n}],").find(static_cast<char>(id)) != std::string::npos) {
          likely.push_back(id);
        }
      }
      const bool bias = !likely.empty() && (*random)() % 3 == 0;
      const std::vector<int32_t>& from = bias ? likely : ids;
      const int32_t id = from[(*random)() % from.size()];
      EXPECT_TRUE(matcher.AcceptToken(id));
      text += texts_[id];
    }
    return "";
  }

  void CheckText(v1::ToolSyntax syntax, const std::string& text) {
    ResponseParser parser({.syntax = syntax, .tools = std::make_shared<ToolSchemas>(tools_)});
    OutputPieces pieces;
    parser.Feed(text, &pieces);
    parser.Finish(&pieces);
    std::vector<std::pair<std::string, std::string>> calls;
    for (const OutputPiece& piece : pieces) {
      ASSERT_NE(piece.kind, OutputPiece::Kind::kContent) << piece.text << "\nin " << text;
      if (piece.kind == OutputPiece::Kind::kCall) calls.emplace_back(piece.text, "");
      if (piece.kind == OutputPiece::Kind::kArguments) calls.back().second += piece.text;
    }
    ASSERT_FALSE(calls.empty()) << text;
    for (const auto& [name, written] : calls) {
      ASSERT_TRUE(schemas_.contains(name)) << name;
      // The grammars of schemas demand that this character is escaped, which JSON does not.
      const std::string arguments = absl::StrReplaceAll(written, {{"\x7f", "\\u007f"}});
      Matcher matcher(schemas_[name], nullptr);
      const size_t accepted = matcher.AcceptText(arguments);
      EXPECT_TRUE(accepted == arguments.size() && matcher.accepts())
          << arguments.substr(0, accepted) << " [here] " << arguments.substr(accepted) << "\nin "
          << text;
    }
  }

  std::vector<std::string> texts_;
  std::shared_ptr<const TokenTrie> trie_;
  std::map<std::string, std::shared_ptr<const Grammar>> schemas_;
  std::string tools_;
};

TEST_F(CallRoundTripTest, EveryTextHasValidCalls) {
  for (const ToolFormat* format : AllToolFormats()) {
    SCOPED_TRACE(v1::ToolSyntax_Name(format->syntax));
    std::mt19937 random(1);
    const auto grammar = Calls(format->syntax);
    int checked = 0;
    for (int i = 0; i < 40; ++i) {
      const std::string text = RandomText(grammar, &random);
      if (text.empty()) continue;
      ++checked;
      CheckText(format->syntax, text);
      if (HasFailure()) return;
    }
    EXPECT_GT(checked, 5);
  }
}

}  // namespace
}  // namespace tidepool::service
