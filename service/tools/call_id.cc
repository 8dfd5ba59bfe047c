#include "service/tools/call_id.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "xxhash.h"

namespace tidepool::service {

std::string CallId(absl::string_view principal, absl::string_view request_id, int32_t call) {
  const std::string name = absl::StrCat(principal.size(), " ", principal, request_id, " ", call);
  const XXH128_hash_t hash = XXH3_128bits(name.data(), name.size());
  return absl::StrCat("call_", absl::Hex(hash.high64, absl::kZeroPad16),
                      absl::Hex(hash.low64 >> 32, absl::kZeroPad8));
}

std::string ShortCallId(absl::string_view id) {
  constexpr size_t kLength = 9;
  const bool fits = id.size() == kLength && std::all_of(id.begin(), id.end(), [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c));
                    });
  if (fits) return std::string(id);
  constexpr absl::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t hash = XXH3_64bits(id.data(), id.size());
  std::string text;
  for (size_t i = 0; i < kLength; ++i) {
    text += kDigits[hash % kDigits.size()];
    hash /= kDigits.size();
  }
  return text;
}

}  // namespace tidepool::service
