// Lexer: splits the source of a template into tokens.
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

inline constexpr size_t kMaxNameBytes = 1000;  // limited, because names are looked up at every step

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

// Returns "chat template, line N: MESSAGE", the format of all errors about a template.
absl::Status InvalidAt(int line, absl::string_view message);
absl::Status UnimplementedAt(int line, absl::string_view message);

// Returns the tokens of `source`. The last one is kEnd. All line ends become "\n", and one at the
// end of the source is dropped. A newline after a block is dropped (trim_blocks), and so are blanks
// between a line's start and a block (lstrip_blocks). "-" and "+" in tags work as in Jinja.
// Comments produce nothing, and raw blocks their text. INVALID_ARGUMENT for an unterminated tag,
// comment or string, an unexpected character, or a name longer than kMaxNameBytes.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_LEXER_H_
