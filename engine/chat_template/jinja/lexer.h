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

inline constexpr size_t kMaxNameBytes = 1000;  // has a limit, because each step may look up a name

struct Token {
  enum class Kind : uint8_t {
    kData,        // text outside of tags
    kPrintBegin,  // {{
    kPrintEnd,    // }}
    kBlockBegin,  // {%
    kBlockEnd,    // %}
    kName,
    kString,  // `text` is the unescaped string
    kInteger,
    kFloat,
    kOperator,
    kEnd,  // end of the source
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;
};

// Return an error "chat template, line N: MESSAGE". All errors about a template have this format.
absl::Status InvalidAt(int line, absl::string_view message);
absl::Status UnimplementedAt(int line, absl::string_view message);

// Returns the tokens of `source`. The last token is kEnd. Every line ending becomes "\n", and a
// line ending at the end of the source is dropped. A newline after a block tag is dropped
// (trim_blocks). Blanks between the start of a line and a block tag are dropped (lstrip_blocks).
// "-" and "+" in tags have the same effect as in Jinja. Comments produce no token, and a raw block
// produces its text. Returns INVALID_ARGUMENT for an unterminated tag, comment or string, an
// unexpected character, or a name longer than kMaxNameBytes.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_LEXER_H_
