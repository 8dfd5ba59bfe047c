#include "engine/tokenizer/normalize.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

bool IsAscii(char c) { return static_cast<unsigned char>(c) < 0x80; }

struct Free {
  void operator()(utf8proc_uint8_t* bytes) const { std::free(bytes); }
};

void AppendNormal(absl::string_view text, utf8proc_option_t options, std::string* out) {
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &raw, options);
  const std::unique_ptr<utf8proc_uint8_t, Free> bytes(raw);
  CHECK(size >= 0) << utf8proc_errmsg(size);
  out->append(reinterpret_cast<const char*>(bytes.get()), size);
}

}  // namespace

std::string Normalize(absl::string_view text, Normalizer form) {
  if (form == Normalizer::kNone) return std::string(text);
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | UTF8PROC_COMPOSE | (form == Normalizer::kNfkc ? UTF8PROC_COMPAT : 0));
  std::string out;
  out.reserve(text.size());
  // ASCII is copied unchanged, except for the last character of each run, because the next
  // character may combine with it.
  size_t plain = 0;
  while (plain < text.size()) {
    size_t begin = plain;
    while (begin < text.size() && IsAscii(text[begin])) ++begin;
    if (begin == text.size()) break;
    size_t end = begin;
    while (end < text.size() && !IsAscii(text[end])) ++end;
    if (begin > plain) --begin;
    out.append(text.data() + plain, begin - plain);
    AppendNormal(text.substr(begin, end - begin), options, &out);
    plain = end;
  }
  out.append(text.data() + plain, text.size() - plain);
  return out;
}

}  // namespace tidepool::engine
