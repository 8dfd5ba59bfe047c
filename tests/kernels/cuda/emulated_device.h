// The device of kernels/cuda/device.h, emulated on the host. Device memory is host memory. Work of
// a stream is kept until somebody waits for it, so that arguments which do not live long enough are
// found.
#ifndef TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_DEVICE_H_
#define TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_DEVICE_H_

#include <any>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_types.h"
#include "kernels/math.h"
#include "tests/kernels/cuda/emulated_block.h"
#include "tests/kernels/cuda/emulated_stream.h"

#define TIDEPOOL_KERNEL void
#define TIDEPOOL_KERNEL_OF(threads, blocks) void
#define TIDEPOOL_DEVICE inline
#define TIDEPOOL_UNROLL
#define TIDEPOOL_UNROLL_BY(n)

namespace tidepool::kernels::cuda {

inline int ThreadIndex() { return EmulatedBlock::Current().thread(); }
inline int BlockThreads() { return EmulatedBlock::Current().threads(); }
inline int LaneIndex() { return ThreadIndex() % kWarpLanes; }
inline int WarpIndex() { return ThreadIndex() / kWarpLanes; }
inline int BlockX() { return EmulatedBlock::Current().block().x; }
inline int BlockY() { return EmulatedBlock::Current().block().y; }
inline int BlockZ() { return EmulatedBlock::Current().block().z; }
inline int GridX() { return EmulatedBlock::Current().grid().x; }
inline int GridY() { return EmulatedBlock::Current().grid().y; }
inline int GridZ() { return EmulatedBlock::Current().grid().z; }

inline void BlockBarrier() { EmulatedBlock::Current().Barrier(); }
inline void WarpBarrier() { EmulatedBlock::Current().BarrierOfWarp(); }
inline void Fence() {}

// in[0] is the value, in[1] the lane that it is read from. ShuffleDown may name a lane after the
// last one; then the own value is the result, as on a GPU.
inline void ShuffleLanes(LaneSlot* const* lanes) {
  for (int i = 0; i < kWarpLanes; ++i) {
    const uint64_t from = lanes[i]->in[1];
    lanes[i]->out[0] = lanes[from < kWarpLanes ? from : i]->in[0];
  }
}

template <typename T>
T ShuffleFrom(T value, int lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  LaneSlot slot;
  std::memcpy(&slot.in[0], &value, sizeof(T));
  slot.in[1] = static_cast<uint64_t>(lane);
  EmulatedBlock::Current().MakeExchange(ShuffleLanes, &slot);
  T result;
  std::memcpy(&result, &slot.out[0], sizeof(T));
  return result;
}
template <typename T>
T Shuffle(T value, int lane) {
  return ShuffleFrom(value, lane % kWarpLanes);
}
template <typename T>
T ShuffleXor(T value, int mask) {
  return ShuffleFrom(value, LaneIndex() ^ mask);
}
template <typename T>
T ShuffleDown(T value, int delta) {
  return ShuffleFrom(value, LaneIndex() + delta);
}

inline void CollectVotes(LaneSlot* const* lanes) {
  uint32_t votes = 0;
  for (int i = 0; i < kWarpLanes; ++i) votes |= static_cast<uint32_t>(lanes[i]->in[0]) << i;
  for (int i = 0; i < kWarpLanes; ++i) lanes[i]->out[0] = votes;
}
inline uint32_t Ballot(bool vote) {
  LaneSlot slot;
  slot.in[0] = vote ? 1 : 0;
  EmulatedBlock::Current().MakeExchange(CollectVotes, &slot);
  return static_cast<uint32_t>(slot.out[0]);
}
inline bool AnyLane(bool vote) { return Ballot(vote) != 0; }
inline bool AllLanes(bool vote) { return Ballot(vote) == ~uint32_t{0}; }

// Returns the values of all 32 lanes.
template <typename T>
std::array<T, kWarpLanes> EmulatedGather(const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::array<T, kWarpLanes> all;
  LaneSlot slot;
  slot.in[0] = reinterpret_cast<uintptr_t>(&mine);
  slot.in[1] = reinterpret_cast<uintptr_t>(all.data());
  EmulatedBlock::Current().MakeExchange(
      [](LaneSlot* const* lanes) {
        for (int i = 0; i < kWarpLanes * kWarpLanes; ++i) {
          const int from = i % kWarpLanes;
          // NOLINTBEGIN(performance-no-int-to-ptr): a slot holds words
          std::memcpy(reinterpret_cast<T*>(lanes[i / kWarpLanes]->in[1]) + from,
                      reinterpret_cast<const T*>(lanes[from]->in[0]), sizeof(T));
          // NOLINTEND(performance-no-int-to-ptr)
        }
      },
      &slot);
  return all;
}

// Something that belongs to the calling thread of the block, and ends with it.
inline std::any* EmulatedSlot() { return EmulatedBlock::Current().slot(); }

// Only one thread runs at a time.
template <typename T>
T AtomicAdd(T* at, std::type_identity_t<T> value) {
  const T old = *at;
  *at = old + value;
  return old;
}
template <typename T>
T AtomicMax(T* at, std::type_identity_t<T> value) {
  const T old = *at;
  *at = old > value ? old : value;
  return old;
}
template <typename T>
T AtomicMin(T* at, std::type_identity_t<T> value) {
  const T old = *at;
  *at = old < value ? old : value;
  return old;
}
template <typename T>
T AtomicCas(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T old = *at;
  if (old == expected) *at = value;
  return old;
}

// An element of a SharedArray. Each use is one access.
template <typename T>
class SharedReference {
 public:
  explicit SharedReference(int first_byte) : first_byte_(first_byte) {}
  SharedReference(const SharedReference&) = default;

  // Used like a T&.
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator T() const {
    T value;
    std::memcpy(&value, EmulatedBlock::Current().Read(first_byte_, sizeof(T), alignof(T)),
                sizeof(T));
    return value;
  }
  // NOLINTBEGIN(misc-unconventional-assign-operator): a reference that is const can be assigned to
  const SharedReference& operator=(const T& value) const {
    std::memcpy(EmulatedBlock::Current().Write(first_byte_, sizeof(T), alignof(T)), &value,
                sizeof(T));
    return *this;
  }
  const SharedReference& operator=(const SharedReference& other) const {
    return *this = static_cast<T>(other);
  }
  // NOLINTEND(misc-unconventional-assign-operator)
  template <typename U>
  const SharedReference& operator+=(const U& value) const {
    return *this = static_cast<T>(static_cast<T>(*this) + value);
  }

 private:
  int first_byte_;
};

template <typename T>
class Shared {
 public:
  Shared(int first_byte, int count) : first_byte_(first_byte), count_(count) {}

  SharedReference<T> operator[](int i) const { return SharedReference<T>(ByteOf(i)); }
  Shared Slice(int first, int count) const {
    if (first < 0 || count < 0 || first + count > count_) {
      EmulatedBlock::Current().Fail(
          absl::StrCat("slice of ", first, " + ", count, " of ", count_, " shared elements"));
    }
    return Shared(first_byte_ + first * static_cast<int>(sizeof(T)), count);
  }
  T Add(int i, T value) const { return AtomicAdd(Update(i), value); }
  T Max(int i, T value) const { return AtomicMax(Update(i), value); }

  // The byte of shared memory at which element i begins.
  int ByteOf(int i) const {
    if (i < 0 || i >= count_) {
      EmulatedBlock::Current().Fail(absl::StrCat("shared element ", i, " of ", count_));
    }
    return first_byte_ + i * static_cast<int>(sizeof(T));
  }

 private:
  T* Update(int i) const {
    return reinterpret_cast<T*>(EmulatedBlock::Current().Update(ByteOf(i), sizeof(T), alignof(T)));
  }

  int first_byte_;
  int count_;
};

template <typename T>
Shared<T> SharedArray(int first_byte, int count) {
  return Shared<T>(first_byte, count);
}

template <typename T>
T LoadOnce(const T* at) {
  return *at;
}

inline int Dot4(uint32_t a, uint32_t b, int c) {
  for (int i = 0; i < 32; i += 8) c += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
  return c;
}
inline uint32_t BytePermute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t index = selector >> (4 * i) & 7;
    result |= (static_cast<uint32_t>(both >> (8 * index)) & 0xff) << (8 * i);
  }
  return result;
}
inline float FloatOfF16(uint16_t half) { return F16ToF32(half); }
inline float SquareRoot(float x) { return __builtin_sqrtf(x); }
inline int PopCount(uint32_t x) { return std::popcount(x); }
inline int LowestBit(uint32_t x) { return x == 0 ? -1 : std::countr_zero(x); }

template <typename... Parameters>
void Launch(Stream* stream, void (*kernel)(Parameters...), Grid grid, int threads, int shared_bytes,
            std::type_identity_t<Parameters>... arguments) {
  stream->AddKernel({grid, threads, shared_bytes}, [=] { kernel(arguments...); });
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_DEVICE_H_
