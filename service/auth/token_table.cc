#include "service/auth/token_table.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

constexpr int kTokenBytes = 32;
constexpr char kTokenPrefix[] = "tp-";
constexpr size_t kLongestPrincipal = 64;

absl::StatusOr<TokenHash> ParseHash(absl::string_view text) {
  TokenHash hash;
  if (text.size() != 2 * hash.size() ||
      !std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isxdigit(c); })) {
    return absl::InvalidArgumentError(
        "the third field is not the SHA-256 of a token, 64 hexadecimal digits; "
        "create one with tidepool token new");
  }
  const std::string bytes = absl::HexStringToBytes(text);
  std::copy(bytes.begin(), bytes.end(), hash.begin());
  return hash;
}

template <typename Number>
absl::Status ParseLimit(absl::string_view name, absl::string_view value, Number least, Number most,
                        Number* limit) {
  if (absl::SimpleAtoi(value, limit) && *limit >= least && *limit <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, "= must be a number from ", least, " to ", most));
}

// Parses one of the fields after the hash.
absl::Status ParseOption(absl::string_view option, PrincipalLimits* limits, absl::Time* expires) {
  if (absl::ConsumePrefix(&option, "rate=")) {
    return ParseLimit<int64_t>("rate", option, 1, kMaxPerMinute, &limits->per_minute);
  }
  if (absl::ConsumePrefix(&option, "concurrency=")) {
    return ParseLimit<int64_t>("concurrency", option, 1, kMaxAtOnce, &limits->at_once);
  }
  if (absl::ConsumePrefix(&option, "max_priority=")) {
    return ParseLimit("max_priority", option, kLowestPriority, kHighestPriority,
                      &limits->max_priority);
  }
  if (absl::ConsumePrefix(&option, "expires=")) {
    ASSIGN_OR_RETURN(*expires, ParseExpiry(option));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "unexpected field after the hash; accepted: rate=, concurrency=, max_priority=, expires=");
}

}  // namespace

TokenHash HashToken(absl::string_view token) {
  TokenHash hash;
  SHA256(reinterpret_cast<const uint8_t*>(token.data()), token.size(), hash.data());
  return hash;
}

std::string HashText(const TokenHash& hash) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(hash.data()), hash.size()));
}

absl::StatusOr<std::string> DrawToken() {
  std::string bytes(kTokenBytes, '\0');
  if (RAND_bytes(reinterpret_cast<uint8_t*>(bytes.data()), kTokenBytes) != 1) {
    return absl::InternalError("the system's random source failed, so no token was created");
  }
  return absl::StrCat(kTokenPrefix, absl::WebSafeBase64Escape(bytes));
}

absl::Status CheckPrincipal(absl::string_view name) {
  const bool well = !name.empty() && name.size() <= kLongestPrincipal &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '@' || c == '-';
                    });
  if (well) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a principal must be 1 to ", kLongestPrincipal,
                                                 " letters, digits, '.', '_', '@', "
                                                 "'-'"));
}

std::string TokenLine(const Caller& caller, const TokenHash& hash, absl::Time expires) {
  std::string line =
      absl::StrCat(caller.principal, " ", RoleName(*caller.role), " ", HashText(hash));
  const PrincipalLimits& limits = caller.limits;
  if (limits.per_minute > 0) absl::StrAppend(&line, " rate=", limits.per_minute);
  if (limits.at_once > 0) absl::StrAppend(&line, " concurrency=", limits.at_once);
  if (limits.max_priority != kUsualMaxPriority) {
    absl::StrAppend(&line, " max_priority=", limits.max_priority);
  }
  if (expires < absl::InfiniteFuture()) {
    absl::StrAppend(
        &line, " expires=", absl::FormatTime("%Y-%m-%d%ET%H:%M:%SZ", expires, absl::UTCTimeZone()));
  }
  return line;
}

absl::StatusOr<absl::Time> ParseExpiry(absl::string_view text) {
  absl::Time time;
  std::string error;
  for (const char* format : {"%Y-%m-%d", "%Y-%m-%d%ET%H:%M:%SZ"}) {
    // Only dates before 9999-12-31 are accepted, so the result is never the infinite future.
    if (text.size() <= 20 && absl::ParseTime(format, text, absl::UTCTimeZone(), &time, &error) &&
        time > absl::UnixEpoch()) {
      return time;
    }
  }
  return absl::InvalidArgumentError(
      "an expiry must be a day, such as 2027-01-01, or a time, such as 2027-01-01T12:00:00Z");
}

absl::StatusOr<TokenTable::Entry> TokenTable::ParseLine(absl::string_view line) {
  const std::vector<absl::string_view> fields =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (fields.size() < 3) {
    return absl::InvalidArgumentError(
        "a line must be: principal role sha256hex [rate=N] [concurrency=N] [max_priority=N] "
        "[expires=TIME]");
  }
  Entry entry;
  RETURN_IF_ERROR(CheckPrincipal(fields[0]));
  entry.caller.principal = std::string(fields[0]);
  entry.caller.role = ParseRole(fields[1]);
  if (!entry.caller.role.has_value()) {
    return absl::InvalidArgumentError("the role must be user, admin or front");
  }
  ASSIGN_OR_RETURN(entry.hash, ParseHash(fields[2]));
  entry.caller.limits.max_priority = kUsualMaxPriority;
  for (const absl::string_view option : absl::MakeSpan(fields).subspan(3)) {
    RETURN_IF_ERROR(ParseOption(option, &entry.caller.limits, &entry.expires));
  }
  return entry;
}

absl::Status TokenTable::CheckNew(const Entry& entry, const Seen& seen) const {
  if (const auto same = seen.hashes.find(entry.hash); same != seen.hashes.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("its hash is already in line ", entries_[same->second].line));
  }
  const auto same = seen.principals.find(entry.caller.principal);
  if (same == seen.principals.end()) return absl::OkStatus();
  const Entry& other = entries_[same->second];
  if (other.caller.role == entry.caller.role && other.caller.limits == entry.caller.limits) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("its principal has a different role, rate, concurrency or max_priority in line ",
                   other.line, "; all lines of a principal must agree in these"));
}

absl::StatusOr<TokenTable> TokenTable::Parse(absl::string_view text) {
  TokenTable table;
  Seen seen;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    absl::StatusOr<Entry> entry = ParseLine(line);
    if (entry.ok()) entry->line = number;
    const absl::Status status = entry.ok() ? table.CheckNew(*entry, seen) : entry.status();
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", status.message()));
    }
    if (table.entries_.size() == kMaxTokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": more than ", kMaxTokens, " tokens"));
    }
    seen.hashes.emplace(entry->hash, table.entries_.size());
    seen.principals.emplace(entry->caller.principal, table.entries_.size());
    table.entries_.push_back(*std::move(entry));
  }
  // A file may have no tokens because it is still being written.
  if (table.entries_.empty()) {
    return absl::InvalidArgumentError("it has no tokens; create one with tidepool token new");
  }
  return table;
}

absl::StatusOr<Caller> TokenTable::Find(absl::string_view token, absl::Time now) const {
  const TokenHash hash = HashToken(token);
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.hash.data(), hash.data(), hash.size()) == 0) found = &entry;
  }
  if (found == nullptr) {
    return absl::UnauthenticatedError(
        "the token is unknown or was revoked; ask the server's operator for another");
  }
  if (found->expires <= now) {
    return absl::UnauthenticatedError(
        absl::StrCat("the token expired on ",
                     absl::FormatTime("%Y-%m-%d %H:%M UTC", found->expires, absl::UTCTimeZone()),
                     "; ask the server's operator for another"));
  }
  return found->caller;
}

}  // namespace tidepool::service
