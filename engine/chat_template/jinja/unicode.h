// Properties of characters, as Python's str defines them.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_UNICODE_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_UNICODE_H_

#include <string>

namespace tidepool::engine::jinja {

// Each function is Python's method for one character, for example str.isalpha.
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsPrintable(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsTitle(char32_t c);  // true only for title-case characters, such as U+01C5
bool IsBlank(char32_t c);  // implements str.isspace
inline bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }
inline bool IsAlnum(char32_t c) { return IsAlpha(c) || IsDecimal(c) || IsDigit(c) || IsNumeric(c); }
// Returns whether \w of Python's regular expressions matches the character.
inline bool IsWord(char32_t c) { return IsAlnum(c) || c == '_'; }

// Append the upper-case, lower-case or title-case form of `c` as UTF-8. It may have several
// characters.
void AppendUpper(char32_t c, std::string* out);
void AppendLower(char32_t c, std::string* out);
void AppendTitle(char32_t c, std::string* out);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_UNICODE_H_
