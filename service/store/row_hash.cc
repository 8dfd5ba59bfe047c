#include "service/store/row_hash.h"

#include <xxhash.h>

#include "absl/strings/str_format.h"

namespace tidepool::service {
namespace {

void PutBigEndian(uint64_t value, std::string* bytes) {
  for (int shift = 56; shift >= 0; shift -= 8) bytes->push_back(static_cast<char>(value >> shift));
}

uint64_t TakeBigEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

}  // namespace

std::string Hash128::Bytes() const {
  std::string bytes;
  PutBigEndian(high, &bytes);
  PutBigEndian(low, &bytes);
  return bytes;
}

Hash128 Hash128::FromBytes(absl::string_view bytes) {
  if (bytes.size() != 16) return {};
  return {.high = TakeBigEndian(bytes.substr(0, 8)), .low = TakeBigEndian(bytes.substr(8))};
}

std::string Hash128::Hex() const { return absl::StrFormat("%016x%016x", high, low); }

Hash128& Hash128::operator+=(const Hash128& other) {
  high += other.high;
  low += other.low;
  return *this;
}

Hash128& Hash128::operator-=(const Hash128& other) {
  high -= other.high;
  low -= other.low;
  return *this;
}

Hash128 HashBytes(absl::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.high = hash.high64, .low = hash.low64};
}

RowHasher& RowHasher::Add(int64_t value) {
  PutBigEndian(static_cast<uint64_t>(value), &bytes_);
  return *this;
}

RowHasher& RowHasher::Add(absl::string_view value) {
  PutBigEndian(value.size(), &bytes_);
  bytes_.append(value.data(), value.size());
  return *this;
}

}  // namespace tidepool::service
