// SHA-1 as the Redis store's scripts use it, which know no other hash: to notice damage, not to
// keep anybody out.
//
// A string that grows is hashed in blocks of 256 bytes, so that an append hashes no more than it
// brought: state = hex(SHA-1(state + block)) over whole blocks, beginning with the empty string.
#ifndef TIDEPOOL_SERVICE_STORE_SHA1_CHAIN_H_
#define TIDEPOOL_SERVICE_STORE_SHA1_CHAIN_H_

#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// 40 hex digits.
std::string Sha1Hex(absl::string_view bytes);

// The state behind the whole blocks of `bytes`.
std::string Sha1Chain(absl::string_view bytes);

// The state after all of `bytes`, and the rest after the last complete block.
std::string Sha1Digest(absl::string_view bytes);

// "3:abc2:de": no two lists of values give the same.
std::string PackValues(std::initializer_list<absl::string_view> values);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SHA1_CHAIN_H_
