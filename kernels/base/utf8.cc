#include "kernels/base/utf8.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/check.h"

namespace tidepool::base {
namespace {

// What a lead byte determines: the total size, and the range of the second byte. All further bytes
// are in the range 80 to BF.
struct Lead {
  size_t size = 0;  // 0 if the byte is not a lead byte
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead ReadLead(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

Utf8Char NextUtf8Char(absl::string_view bytes) {
  using Kind = Utf8Char::Kind;
  CHECK(!bytes.empty());
  const auto first = static_cast<uint8_t>(bytes[0]);
  const Lead lead = ReadLead(first);
  if (lead.size == 0) return {Kind::kInvalid, 1};
  if (lead.size == 1) return {Kind::kWhole, 1, first};
  char32_t code_point = first & (0xFF >> (lead.size + 1));
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {Kind::kIncomplete, i};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Kind::kInvalid, i};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {Kind::kWhole, lead.size, code_point};
}

size_t ValidUtf8Prefix(absl::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    if (static_cast<uint8_t>(text[size]) < 0x80) {
      ++size;
      continue;
    }
    const Utf8Char next = NextUtf8Char(text.substr(size));
    if (next.kind != Utf8Char::Kind::kWhole) break;
    size += next.size;
  }
  return size;
}

absl::Status CheckUtf8(absl::string_view text, absl::string_view what) {
  const size_t offset = ValidUtf8Prefix(text);
  if (offset == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s is not UTF-8: byte 0x%02X at offset %d",
                                                    what, static_cast<uint8_t>(text[offset]),
                                                    offset));
}

std::string AppendUtf8Lossy(absl::string_view bytes, std::string* out) {
  while (!bytes.empty()) {
    const Utf8Char next = NextUtf8Char(bytes);
    if (next.kind == Utf8Char::Kind::kIncomplete) return std::string(bytes);
    if (next.kind == Utf8Char::Kind::kWhole) {
      out->append(bytes.data(), next.size);
    } else {
      absl::StrAppend(out, kReplacementCharacter);
    }
    bytes.remove_prefix(next.size);
  }
  return "";
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::string EscapeControls(absl::string_view text, size_t max_characters) {
  std::string out;
  for (size_t shown = 0; !text.empty(); ++shown) {
    if (shown == max_characters) return out + "...";
    const Utf8Char next = NextUtf8Char(text);
    const bool is_control =
        next.code_point < 0x20 || (next.code_point >= 0x7F && next.code_point < 0xA0);
    if (next.kind == Utf8Char::Kind::kWhole && !is_control) {
      absl::StrAppend(&out, text.substr(0, next.size));
    } else {
      for (const char byte : text.substr(0, next.size)) {
        absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(byte));
      }
    }
    text.remove_prefix(next.size);
  }
  return out;
}

std::string Quoted(absl::string_view text) {
  constexpr size_t kMaxCharacters = 64;
  return absl::StrCat("'", EscapeControls(text, kMaxCharacters), "'");
}

}  // namespace tidepool::base
