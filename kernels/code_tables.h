// The values of the codes of four-bit types whose codes are not linear.
#ifndef TIDEPOOL_KERNELS_CODE_TABLES_H_
#define TIDEPOOL_KERNELS_CODE_TABLES_H_

#include <cstdint>

namespace tidepool::kernels {

// Values of the codes of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// Values of E2M1, the four-bit float of MXFP4 and NVFP4. They are doubled to be integers, so the
// scales are halved.
inline constexpr int8_t kE2M1Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// A table as two words: byte i of `low` is value i, byte i of `high` is value 8 + i.
struct CodeWords {
  uint64_t low = 0;
  uint64_t high = 0;
};
static constexpr CodeWords WordsOf(const int8_t (&table)[16]) {
  CodeWords words;
  for (int i = 0; i < 8; ++i) {
    words.low |= uint64_t{static_cast<uint8_t>(table[i])} << (8 * i);
    words.high |= uint64_t{static_cast<uint8_t>(table[8 + i])} << (8 * i);
  }
  return words;
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CODE_TABLES_H_
