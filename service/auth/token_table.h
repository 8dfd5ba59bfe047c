// TokenTable: the callers that a token file allows.
//
//   # principal role(user|admin|front) sha256hex [rate=N] [concurrency=N] [max_priority=N]
//     [expires=TIME]
//   alice  user   5e88...  rate=60 concurrency=4 max_priority=10
//   bob    user   9f86...
//   bob    user   0b3a...  expires=2027-01-01   # the old token, until everybody has the new one
//   ops    admin  2c26...
//   front  front  fcde...
//
// The file holds SHA-256 hashes of tokens, so reading it does not reveal a token. Tokens are 32
// random bytes, so they cannot be guessed, and no slower hash than SHA-256 is needed.
#ifndef TIDEPOOL_SERVICE_AUTH_TOKEN_TABLE_H_
#define TIDEPOOL_SERVICE_AUTH_TOKEN_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/auth/caller.h"

namespace tidepool::service {

using TokenHash = std::array<uint8_t, 32>;  // SHA-256

TokenHash HashToken(absl::string_view token);
// 64 lower-case hex digits.
std::string HashText(const TokenHash& hash);
// "tp-" and 43 characters: 32 bytes from the system's random source. INTERNAL if that fails.
absl::StatusOr<std::string> DrawToken();

// Maximum values of "rate=" and "concurrency=".
inline constexpr int64_t kMaxPerMinute = 1'000'000;
inline constexpr int64_t kMaxAtOnce = 100'000;

// Accepts 1 to 64 letters, digits and . _ @ - characters. INVALID_ARGUMENT does not quote the name.
absl::Status CheckPrincipal(absl::string_view name);
// Returns the line for `caller`, without '\n'. Requires: the caller has a role.
std::string TokenLine(const Caller& caller, const TokenHash& hash, absl::Time expires);
// Accepts "2027-01-01" (UTC) or RFC 3339, such as "2027-01-01T12:00:00Z". INVALID_ARGUMENT.
absl::StatusOr<absl::Time> ParseExpiry(absl::string_view text);

// Thread-safe, because it is const.
class TokenTable {
 public:
  static constexpr size_t kMaxFileBytes = size_t{1} << 20;
  static constexpr size_t kMaxTokens = 8192;

  // INVALID_ARGUMENT names the line and what is wrong with it. Of the text, it quotes only names of
  // roles and options, because a token may be in the place of its hash.
  static absl::StatusOr<TokenTable> Parse(absl::string_view text);

  // UNAUTHENTICATED if the token is unknown or has expired. Takes constant time, so timing reveals
  // nothing about the hashes.
  absl::StatusOr<Caller> Find(absl::string_view token, absl::Time now) const;

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    TokenHash hash;
    absl::Time expires = absl::InfiniteFuture();
    Caller caller;
    int line = 0;
  };

  // Indices in entries_ where a hash or principal appeared first.
  struct Seen {
    std::map<TokenHash, size_t> hashes;
    std::map<std::string, size_t> principals;
  };

  static absl::StatusOr<Entry> ParseLine(absl::string_view line);
  // Checks an entry against the earlier ones.
  absl::Status CheckNew(const Entry& entry, const Seen& seen) const;

  std::vector<Entry> entries_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_TOKEN_TABLE_H_
