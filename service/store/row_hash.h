// Hashes over what a store keeps, to notice damage: XXH3-128 (https://xxhash.com). They guard
// against accidents (flipped bits, lost or stale pages), not against somebody who can write the
// file.
//
//   const Hash128 hash = RowHasher("chunk").Add(previous).Add(start).Add(tokens).Finish();
#ifndef TIDEPOOL_SERVICE_STORE_ROW_HASH_H_
#define TIDEPOOL_SERVICE_STORE_ROW_HASH_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  // 16 bytes, big-endian.
  std::string Bytes() const;
  // Another number of bytes gives 0, which no row has.
  static Hash128 FromBytes(absl::string_view bytes);
  // 32 hex digits.
  std::string Hex() const;

  // Two sums, each modulo 2^64: a hash of a set, whatever the order.
  Hash128& operator+=(const Hash128& other);
  Hash128& operator-=(const Hash128& other);
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// Of any bytes.
Hash128 HashBytes(absl::string_view bytes);

// Thread-compatible. Values are length-prefixed, so that two lists of values differ in their bytes.
class RowHasher {
 public:
  // `kind` keeps rows of different tables apart.
  explicit RowHasher(absl::string_view kind) { Add(kind); }

  RowHasher& Add(int64_t value);
  RowHasher& Add(absl::string_view value);
  RowHasher& Add(const Hash128& value) { return Add(value.Bytes()); }
  Hash128 Finish() const { return HashBytes(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_ROW_HASH_H_
