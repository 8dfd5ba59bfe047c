// The device of kernels/cuda/device.h, emulated on the host. Device memory is host memory. Work of
// a stream runs late: at the latest, when a caller waits for it. So tests detect arguments that do
// not live long enough.
#ifndef TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_DEVICE_H_
#define TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_DEVICE_H_

#include <any>
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
inline int GridX() { return EmulatedBlock::Current().grid().x; }
inline int GridY() { return EmulatedBlock::Current().grid().y; }

inline void BlockBarrier() { EmulatedBlock::Current().Barrier(); }
inline void WarpBarrier() { EmulatedBlock::Current().BarrierOfWarp(); }

// in[0] is the value of this lane. in[1] is the lane whose value this lane gets.
inline void ShuffleLanes(LaneSlot* const* lanes) {
  for (int i = 0; i < kWarpLanes; ++i) lanes[i]->out[0] = lanes[lanes[i]->in[1]]->in[0];
}

template <typename T>
T ShuffleFrom(T value, int lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  LaneSlot slot;
  std::memcpy(&slot.in[0], &value, sizeof(T));
  slot.in[1] = static_cast<uint64_t>(lane) % kWarpLanes;
  EmulatedBlock::Current().MakeExchange(ShuffleLanes, &slot);
  T result;
  std::memcpy(&result, &slot.out[0], sizeof(T));
  return result;
}
template <typename T>
T Shuffle(T value, int lane) {
  return ShuffleFrom(value, lane);
}
template <typename T>
T ShuffleXor(T value, int mask) {
  return ShuffleFrom(value, LaneIndex() ^ mask);
}

inline void CollectVotes(LaneSlot* const* lanes) {
  uint64_t all = 1;
  for (int i = 0; i < kWarpLanes; ++i) all &= lanes[i]->in[0];
  for (int i = 0; i < kWarpLanes; ++i) lanes[i]->out[0] = all;
}
inline bool AllLanes(bool vote) {
  LaneSlot slot;
  slot.in[0] = vote ? 1 : 0;
  EmulatedBlock::Current().MakeExchange(CollectVotes, &slot);
  return slot.out[0] != 0;
}

// Returns storage for one value of the calling thread. It is destroyed when the thread ends.
inline std::any* EmulatedSlot() { return EmulatedBlock::Current().slot(); }

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

  // Returns the offset in shared memory at which element i begins.
  int ByteOf(int i) const {
    if (i < 0 || i >= count_) {
      EmulatedBlock::Current().Fail(absl::StrCat("shared element ", i, " of ", count_));
    }
    return first_byte_ + i * static_cast<int>(sizeof(T));
  }

 private:
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

template <typename... Parameters>
void Launch(Stream* stream, void (*kernel)(Parameters...), Grid grid, int threads, int shared_bytes,
            std::type_identity_t<Parameters>... arguments) {
  stream->AddKernel({grid, threads, shared_bytes}, [=] { kernel(arguments...); });
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_DEVICE_H_
