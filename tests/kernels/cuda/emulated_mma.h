// The functions of kernels/cuda/mma.h on the emulated device. emulated_mma_test.cc compares them
// with layouts from an independent source.
//
// When a thread begins a copy, the target is overwritten with wrong bytes at once. When the thread
// waits for the copy, the source is read and written to the target. So a missing wait, a missing
// barrier and a source that changes too early give wrong results.
#ifndef TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_MMA_H_
#define TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_MMA_H_

#include <any>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/math.h"
#include "tests/kernels/cuda/emulated_block.h"

namespace tidepool::kernels::cuda {

inline uint64_t TwoWords(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }
inline uint32_t WordOf(const uint64_t* words, int i) {
  return static_cast<uint32_t>(words[i / 2] >> (32 * (i % 2)));
}

// Computes all elements of a product with kK columns of A. A lane's slot has a[0] to a[3] in in[0]
// and in[1], b in in[2], c in in[3], and gets d in out[0] and out[1]. Each word has four columns.
// Word i of `a` has row lane / 4 + 8 (i % 2) and columns 4 (lane % 4) + 16 (i / 2). Word i of b has
// these columns, too, of column lane / 4 of B. d[i] is row lane / 4 + 8 (i / 2) and column 2 (lane
// % 4) + i % 2.
template <int kK>
void MultiplyFragments(LaneSlot* const* lanes) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    uint32_t d[4];
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4;
      const int column = lane % 4 * 2 + i % 2;
      d[i] = static_cast<uint32_t>(lanes[lane]->in[3]);
      for (int k = 0; k < kK; k += 4) {
        const uint32_t a = WordOf(lanes[4 * row + k / 4 % 4]->in, i / 2 + k / 16 * 2);
        const uint32_t b = WordOf(lanes[4 * column + k / 4 % 4]->in + 2, k / 16);
        d[i] = static_cast<uint32_t>(Dot4(a, b, static_cast<int>(d[i])));
      }
    }
    lanes[lane]->out[0] = TwoWords(d[0], d[1]);
    lanes[lane]->out[1] = TwoWords(d[2], d[3]);
  }
}

inline void MakeProduct(Exchange exchange, LaneSlot* slot, int c, int (&d)[4]) {
  slot->in[3] = static_cast<uint32_t>(c);
  EmulatedBlock::Current().MakeExchange(exchange, slot);
  for (int i = 0; i < 4; ++i) d[i] = static_cast<int>(WordOf(slot->out, i));
}

inline void Mma32(const uint32_t (&a)[4], const uint32_t (&b)[2], int c, int (&d)[4]) {
  LaneSlot slot;
  slot.in[0] = TwoWords(a[0], a[1]);
  slot.in[1] = TwoWords(a[2], a[3]);
  slot.in[2] = TwoWords(b[0], b[1]);
  MakeProduct(MultiplyFragments<32>, &slot, c, d);
}

inline void Mma16(uint32_t a0, uint32_t a1, uint32_t b, int c, int (&d)[4]) {
  LaneSlot slot;
  slot.in[0] = TwoWords(a0, a1);
  slot.in[2] = b;
  MakeProduct(MultiplyFragments<16>, &slot, c, d);
}

// The input of lane 8m + i is row i of matrix m. Lane l gets word l % 4 of row l / 4 of each
// matrix.
inline void TransposeMatrices(LaneSlot* const* lanes) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    uint32_t words[4];
    for (int m = 0; m < 4; ++m) words[m] = WordOf(lanes[8 * m + lane / 4]->in, lane % 4);
    lanes[lane]->out[0] = TwoWords(words[0], words[1]);
    lanes[lane]->out[1] = TwoWords(words[2], words[3]);
  }
}

inline void LoadMatrix4(const Shared<U32x4>& array, int row, uint32_t (&out)[4]) {
  const U32x4 mine = array[row];
  LaneSlot slot;
  slot.in[0] = TwoWords(mine.x, mine.y);
  slot.in[1] = TwoWords(mine.z, mine.w);
  EmulatedBlock::Current().MakeExchange(TransposeMatrices, &slot);
  for (int m = 0; m < 4; ++m) out[m] = WordOf(slot.out, m);
}

// The copies of a thread that are not complete: groups of copies, and copies that are not in a
// group yet.
struct PendingCopies {
  std::deque<std::vector<std::function<void()>>> groups;
  std::vector<std::function<void()>> open;

  static PendingCopies& OfThread() {
    std::any& slot = *EmulatedSlot();
    if (!slot.has_value()) slot = PendingCopies();
    return std::any_cast<PendingCopies&>(slot);
  }
};

template <typename T>
void CopyAsync(const T* from, const Shared<T>& to, int i) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  if (reinterpret_cast<uintptr_t>(from) % sizeof(T) != 0) {
    EmulatedBlock::Current().Fail("misaligned source of an asynchronous copy");
  }
  T wrong;
  std::memset(&wrong, 0x55, sizeof(T));
  to[i] = wrong;
  PendingCopies::OfThread().open.emplace_back([from, to, i] {
    T value;
    std::memcpy(&value, from, sizeof(T));
    to[i] = value;
  });
}

inline void CommitCopies() {
  PendingCopies& copies = PendingCopies::OfThread();
  copies.groups.push_back(std::move(copies.open));
  copies.open.clear();
}

template <int kGroups>
void WaitForCopies() {
  PendingCopies& copies = PendingCopies::OfThread();
  for (; copies.groups.size() > kGroups; copies.groups.pop_front()) {
    for (const auto& copy : copies.groups.front()) copy();
  }
}

template <typename T>
T ShuffleQuad(T value, int i) {
  return Shuffle(value, LaneIndex() / 4 * 4 + i);
}

template <typename T>
uint32_t LoadConstant(const std::byte* at) {
  if (reinterpret_cast<uintptr_t>(at) % sizeof(T) != 0) {
    EmulatedBlock::Current().Fail("misaligned load");
  }
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}
inline uint32_t LoadConstant32(const std::byte* at) { return LoadConstant<uint32_t>(at); }
inline uint32_t LoadConstant16(const std::byte* at) { return LoadConstant<uint16_t>(at); }
inline uint32_t LoadConstant8(const std::byte* at) { return LoadConstant<uint8_t>(at); }

inline int Forget(int value) { return value; }

inline float F16Value(uint32_t half) { return F16ToF32(static_cast<uint16_t>(half)); }

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_MMA_H_
