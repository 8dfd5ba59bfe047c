// Lexer: the source of a template as tokens.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_LEXER_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_LEXER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tidepool::engine::jinja {

inline constexpr size_t kMaxNameBytes = 1000;  // names are looked up at every step

struct Token {
  enum class Kind : uint8_t {
    kData,        // text outside of tags
    kPrintBegin,  // {{
    kPrintEnd,    // }}
    kBlockBegin,  // {%
    kBlockEnd,    // %}
    kName,
    kString,  // text: unescaped
    kInteger,
    kFloat,
    kOperator,
    kEnd,  // of the source
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;
};

// "chat template, line N: MESSAGE", the form of every complaint about a template.
absl::Status InvalidAt(int line, absl::string_view message);
absl::Status UnimplementedAt(int line, absl::string_view message);

// Tokens of `source`, the last one kEnd. Line ends become "\n", one at the end of the source is
// dropped, the first one after a block goes (trim_blocks) and so do blanks between a line's start
// and a block (lstrip_blocks); "-" and "+" at a tag's ends do as Jinja says. Comments leave
// nothing, raw blocks their text. INVALID_ARGUMENT: a tag, comment or string that does not end, a
// stray character, a name of more than kMaxNameBytes.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_LEXER_H_
