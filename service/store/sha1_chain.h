// SHA-1 hashes as computed by the scripts of the Redis store, which have no other hash function.
// They detect damage, but do not stop an attacker.
//
// A string that grows is hashed in blocks of 256 bytes. So an append only has to hash the bytes
// that it adds. The state is at first the empty string. Each complete block changes it to
// hex(SHA-1(state + block)).
#ifndef TIDEPOOL_SERVICE_STORE_SHA1_CHAIN_H_
#define TIDEPOOL_SERVICE_STORE_SHA1_CHAIN_H_

#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// Returns 40 hex digits.
std::string Sha1Hex(absl::string_view bytes);

// Returns the state after all complete blocks of `bytes`.
std::string Sha1Chain(absl::string_view bytes);

// Returns the state after all of `bytes`, including the incomplete block at the end.
std::string Sha1Digest(absl::string_view bytes);

// Returns a text such as "3:abc2:de". Different lists of values never give the same text.
std::string PackValues(std::initializer_list<absl::string_view> values);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SHA1_CHAIN_H_
