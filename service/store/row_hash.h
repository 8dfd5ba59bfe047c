// Hashes of stored rows: XXH3-128 (https://xxhash.com). They detect accidental damage, such as
// flipped bits and lost or old pages. They do not protect against a person who can write the file.
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

  // Returns 16 bytes, big-endian.
  std::string Bytes() const;
  // If `bytes` does not have 16 bytes, the result is 0. No row has this hash.
  static Hash128 FromBytes(absl::string_view bytes);
  // Returns 32 hex digits.
  std::string Hex() const;

  // Adds both halves, each modulo 2^64. The sum does not depend on the order of the hashes, so it
  // is the hash of a set.
  Hash128& operator+=(const Hash128& other);
  Hash128& operator-=(const Hash128& other);
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

Hash128 HashBytes(absl::string_view bytes);

// Thread-compatible. The length of each value is hashed before the value. So different lists of
// values never produce the same bytes.
class RowHasher {
 public:
  // Each table has another `kind`, so that rows of two tables never have the same hash.
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
