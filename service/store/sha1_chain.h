// SHA-1 as in the Redis store's scripts, which have no other hash. It detects damage and does not
// stop an attacker.
//
// A string that grows is hashed in blocks of 256 bytes, so that an append hashes only its own
// bytes. The state starts as the empty string. Each complete block changes it to
// hex(SHA-1(state + block)).
#ifndef TIDEPOOL_SERVICE_STORE_SHA1_CHAIN_H_
#define TIDEPOOL_SERVICE_STORE_SHA1_CHAIN_H_

#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// 40 hex digits.
std::string Sha1Hex(absl::string_view bytes);

// The state after all complete blocks of `bytes`.
std::string Sha1Chain(absl::string_view bytes);

// The state after all of `bytes`, and the rest after the last complete block.
std::string Sha1Digest(absl::string_view bytes);

// Such as "3:abc2:de". Different lists of values never give the same string.
std::string PackValues(std::initializer_list<absl::string_view> values);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SHA1_CHAIN_H_
