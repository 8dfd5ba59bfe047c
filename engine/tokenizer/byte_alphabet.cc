#include "engine/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "kernels/base/utf8.h"

namespace tidepool::engine {
namespace {

constexpr int kAlphabetEnd = 256 + 68;

constexpr bool StandsForItself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr std::array<uint16_t, 256> MakeAlphabet() {
  std::array<uint16_t, 256> alphabet = {};
  uint16_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet[byte] = StandsForItself(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return alphabet;
}

constexpr std::array<int16_t, kAlphabetEnd> MakeInverse() {
  std::array<int16_t, kAlphabetEnd> inverse = {};
  for (int16_t& byte : inverse) byte = -1;
  const std::array<uint16_t, 256> alphabet = MakeAlphabet();
  for (int byte = 0; byte < 256; ++byte) inverse[alphabet[byte]] = static_cast<int16_t>(byte);
  return inverse;
}

constexpr std::array<uint16_t, 256> kAlphabet = MakeAlphabet();
constexpr std::array<int16_t, kAlphabetEnd> kInverse = MakeInverse();

}  // namespace

std::string BytesToAlphabet(absl::string_view bytes) {
  std::string writing;
  for (const char byte : bytes) base::AppendUtf8(kAlphabet[static_cast<uint8_t>(byte)], &writing);
  return writing;
}

std::optional<std::string> AlphabetToBytes(absl::string_view writing) {
  std::string bytes;
  while (!writing.empty()) {
    const base::Utf8Char next = base::NextUtf8Char(writing);
    if (next.kind != base::Utf8Char::Kind::kWhole || next.code_point >= kAlphabetEnd ||
        kInverse[next.code_point] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kInverse[next.code_point]));
    writing.remove_prefix(next.size);
  }
  return bytes;
}

}  // namespace tidepool::engine
