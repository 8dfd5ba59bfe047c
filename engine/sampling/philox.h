// Philox4x32-10: a stateless random function of (key, counter). Its results are the same on all
// machines. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011.
#ifndef TIDEPOOL_ENGINE_SAMPLING_PHILOX_H_
#define TIDEPOOL_ENGINE_SAMPLING_PHILOX_H_

#include <array>
#include <cstdint>

namespace tidepool::engine {

inline std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_PHILOX_H_
