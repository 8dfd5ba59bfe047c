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
// The file contains SHA-256 hashes of tokens. So a person who can read the file does not learn the
// tokens. Tokens are 32 random bytes. They are too long to be guessed, so the hash does not have to
// be a slow one.
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
// Returns 64 hex digits in lower case.
std::string HashText(const TokenHash& hash);
// Returns a new token: "tp-" and 43 characters, which encode 32 bytes from the system's random
// source. INTERNAL if that source fails.
absl::StatusOr<std::string> DrawToken();

// The maximum values of "rate=" and "concurrency=".
inline constexpr int64_t kMaxPerMinute = 1'000'000;
inline constexpr int64_t kMaxAtOnce = 100'000;

// Accepts 1 to 64 characters: letters, digits, '.', '_', '@' and '-'. The error INVALID_ARGUMENT
// does not quote the name.
absl::Status CheckPrincipal(absl::string_view name);
// Returns the line for `caller`, without a newline at its end. Requires: the caller has a role.
std::string TokenLine(const Caller& caller, const TokenHash& hash, absl::Time expires);
// Accepts a day such as "2027-01-01" (UTC), or a time such as "2027-01-01T12:00:00Z" (RFC 3339).
// Otherwise INVALID_ARGUMENT.
absl::StatusOr<absl::Time> ParseExpiry(absl::string_view text);

// Thread-safe, because it is used as const.
class TokenTable {
 public:
  static constexpr size_t kMaxFileBytes = size_t{1} << 20;
  static constexpr size_t kMaxTokens = 8192;

  // The error INVALID_ARGUMENT names the line and what is wrong. It quotes nothing of the line
  // except names of roles and options, because a user may have written a token where its hash
  // belongs.
  static absl::StatusOr<TokenTable> Parse(absl::string_view text);

  // UNAUTHENTICATED if the token is unknown or has expired. The time that this takes does not
  // depend on the token, so timing reveals nothing about the hashes.
  absl::StatusOr<Caller> Find(absl::string_view token, absl::Time now) const;

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    TokenHash hash;
    absl::Time expires = absl::InfiniteFuture();
    Caller caller;
    int line = 0;
  };

  // For each hash and each principal: the index in entries_ of the first entry that has it.
  struct Seen {
    std::map<TokenHash, size_t> hashes;
    std::map<std::string, size_t> principals;
  };

  static absl::StatusOr<Entry> ParseLine(absl::string_view line);
  // Checks an entry against the entries before it.
  absl::Status CheckNew(const Entry& entry, const Seen& seen) const;

  std::vector<Entry> entries_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_TOKEN_TABLE_H_
