// Character properties, as in Python's str.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_UNICODE_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_UNICODE_H_

#include <string>

namespace tidepool::engine::jinja {

// Same as str.isalpha and so on for one character.
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsPrintable(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsTitle(char32_t c);  // of title case only: U+01C5
bool IsBlank(char32_t c);  // str.isspace
inline bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }
inline bool IsAlnum(char32_t c) { return IsAlpha(c) || IsDecimal(c) || IsDigit(c) || IsNumeric(c); }
// Matches \w of Python's regular expressions.
inline bool IsWord(char32_t c) { return IsAlnum(c) || c == '_'; }

// Append the upper-case (and so on) form of `c` as UTF-8, which may be several characters.
void AppendUpper(char32_t c, std::string* out);
void AppendLower(char32_t c, std::string* out);
void AppendTitle(char32_t c, std::string* out);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_UNICODE_H_
