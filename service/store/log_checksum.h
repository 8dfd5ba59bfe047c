// LogChecksum: the checksum in SQLite's write-ahead log
// (https://www.sqlite.org/fileformat2.html#walformat). The checksum of a frame covers the header of
// the log and all frames up to this one.
#ifndef TIDEPOOL_SERVICE_STORE_LOG_CHECKSUM_H_
#define TIDEPOOL_SERVICE_STORE_LOG_CHECKSUM_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace tidepool::service {

inline constexpr int kLogChecksumBytes = 8;

// Returns a big-endian integer. SQLite's files contain integers in this form.
inline uint32_t LogWord(absl::string_view bytes, size_t at) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return std::endian::native == std::endian::little ? __builtin_bswap32(word) : word;
}

struct LogChecksum {
  uint32_t first = 0;
  uint32_t second = 0;

  // Returns the checksum that is stored in `bytes` at `at`.
  static LogChecksum Stored(absl::string_view bytes, size_t at) {
    return {.first = LogWord(bytes, at), .second = LogWord(bytes, at + sizeof(uint32_t))};
  }

  // Adds bytes to the checksum. Requires: the size of `bytes` is a multiple of 8, and the log was
  // written on a machine with this machine's byte order.
  void Add(absl::string_view bytes) {
    for (size_t at = 0; at < bytes.size(); at += 2 * sizeof(uint32_t)) {
      uint32_t words[2];
      std::memcpy(words, bytes.data() + at, sizeof(words));
      first += words[0] + second;
      second += words[1] + first;
    }
  }

  friend bool operator==(const LogChecksum&, const LogChecksum&) = default;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_LOG_CHECKSUM_H_
