// The emulated forms of kernels/cuda/mma.h follow the layouts of fragments that cute defines
// (make_mma_layouts.py), and emulated copies are not complete before a thread waits for them.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/runtime.h"

namespace tidepool::kernels::cuda {
namespace {

using testing::HasSubstr;

// The elements of each lane.
using Layout = std::vector<std::vector<int>>;

std::map<std::string, Layout> ReadLayouts() {
  std::ifstream file("tests/kernels/cuda/mma_layouts.txt");
  std::map<std::string, Layout> layouts;
  Layout* layout = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line[0] == 'm' || line[0] == 'l') {
      layout = &layouts[line];
      continue;
    }
    std::istringstream numbers(line);
    layout->emplace_back();
    for (int number; numbers >> number;) layout->back().push_back(number);
  }
  return layouts;
}

class EmulatedMmaTest : public testing::Test {
 protected:
  EmulatedMmaTest() : layouts_(ReadLayouts()), stream_(*MakeStream(0)) {}
  ~EmulatedMmaTest() override { DeleteStream(stream_); }

  // Returns the words of all lanes for the elements of a matrix of bytes.
  std::vector<uint32_t> Fragments(const std::string& name, const std::vector<int8_t>& matrix) {
    std::vector<uint32_t> words;
    for (const std::vector<int>& elements : layouts_.at(name)) {
      for (size_t i = 0; i < elements.size(); i += 4) {
        words.push_back(0);
        for (int byte = 0; byte < 4; ++byte) {
          words.back() |= uint32_t{static_cast<uint8_t>(matrix[elements[i + byte]])} << (8 * byte);
        }
      }
    }
    return words;
  }

  // Runs a kernel on words and returns 128 results.
  template <typename Kernel>
  std::vector<int> Run(Kernel kernel, const std::vector<uint32_t>& a,
                       const std::vector<uint32_t>& b) {
    std::vector<int> d(128);
    Launch(stream_, kernel, {}, 32, 0, a.data(), b.data(), d.data());
    EXPECT_EQ(Synchronize(stream_).message(), "");
    return d;
  }

  void CompareProducts(const std::string& name, int k_count,
                       void (*kernel)(const uint32_t*, const uint32_t*, int*)) {
    std::vector<int8_t> a(16 * k_count);
    std::vector<int8_t> b(k_count * 8);
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<int8_t>(i * 37 + 11);
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<int8_t>(i * 91 + 5);
    const std::vector<int> d = Run(kernel, Fragments(name + ".a", a), Fragments(name + ".b", b));
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int element = layouts_.at(name + ".c")[lane][i];
        int expected = 1000;
        for (int k = 0; k < k_count; ++k) {
          expected += a[element / 8 * k_count + k] * b[k * 8 + element % 8];
        }
        EXPECT_EQ(d[4 * lane + i], expected) << name << " lane " << lane << " value " << i;
      }
    }
  }

  std::map<std::string, Layout> layouts_;
  Stream* stream_;
};

TIDEPOOL_KERNEL MultiplyBy32(const uint32_t* a, const uint32_t* b, int* d) {
  const int lane = LaneIndex();
  const uint32_t* mine = a + 4 * lane;
  int out[4];
  Mma32({mine[0], mine[1], mine[2], mine[3]}, {b[2 * lane], b[2 * lane + 1]}, 1000, out);
  for (int i = 0; i < 4; ++i) d[4 * lane + i] = out[i];
}

TIDEPOOL_KERNEL MultiplyBy16(const uint32_t* a, const uint32_t* b, int* d) {
  const int lane = LaneIndex();
  int out[4];
  Mma16(a[2 * lane], a[2 * lane + 1], b[lane], 1000, out);
  for (int i = 0; i < 4; ++i) d[4 * lane + i] = out[i];
}

TEST_F(EmulatedMmaTest, ProductsFollowTheLayouts) {
  CompareProducts("m16n8k32", 32, MultiplyBy32);
  CompareProducts("m16n8k16", 16, MultiplyBy16);
}

// Each lane loads a row with another number than its own, so that wrong addresses are detected.
TIDEPOOL_KERNEL LoadReversed(const U32x4* rows, uint32_t* out) {
  const Shared<U32x4> shared = SharedArray<U32x4>(0, 32);
  const int lane = LaneIndex();
  shared[31 - lane] = rows[lane];
  BlockBarrier();
  uint32_t words[4];
  LoadMatrix4(shared, 31 - lane, words);
  for (int m = 0; m < 4; ++m) out[4 * lane + m] = words[m];
}

TEST_F(EmulatedMmaTest, MatricesFollowTheLayout) {
  std::vector<U32x4> rows(32);
  std::vector<uint8_t> bytes(512);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
  std::memcpy(rows.data(), bytes.data(), bytes.size());
  std::vector<uint32_t> out(128);
  Launch(stream_, LoadReversed, {}, 32, 512, rows.data(), out.data());
  EXPECT_EQ(Synchronize(stream_).message(), "");
  const Layout& layout = layouts_.at("ldmatrix.x4");
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(out[4 * lane + i / 4] >> (i % 4 * 8) & 255, bytes[layout[lane][i]]) << lane;
    }
  }
}

// Copies two groups, waits for the first one, and reads both.
TIDEPOOL_KERNEL ReadBeforeWaiting(const uint32_t* from, uint32_t* out) {
  const Shared<uint32_t> shared = SharedArray<uint32_t>(0, 64);
  const int lane = LaneIndex();
  CopyAsync(from + lane, shared, lane);
  CommitCopies();
  CopyAsync(from + 32 + lane, shared, 32 + lane);
  CommitCopies();
  WaitForCopies<1>();
  out[lane] = shared[lane];
  out[32 + lane] = shared[32 + lane];
  WaitForCopies<0>();
  out[64 + lane] = shared[32 + lane];
}

TEST_F(EmulatedMmaTest, CopiesAreCompleteAfterTheWaitAlone) {
  std::vector<uint32_t> from(64, 7);
  std::vector<uint32_t> out(96);
  Launch(stream_, ReadBeforeWaiting, {}, 32, 256, from.data(), out.data());
  EXPECT_EQ(Synchronize(stream_).message(), "");
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], 7u);
    EXPECT_EQ(out[32 + i], 0x55555555u);
    EXPECT_EQ(out[64 + i], 7u);
  }
}

TIDEPOOL_KERNEL CopyOverReaders(const uint32_t* from, uint32_t* out) {
  const Shared<uint32_t> shared = SharedArray<uint32_t>(0, 64);
  const int thread = ThreadIndex();
  CopyAsync(from + thread, shared, thread);
  CommitCopies();
  WaitForCopies<0>();
  BlockBarrier();
  out[thread] = shared[63 - thread];
  CopyAsync(from + thread, shared, thread);
}

TEST_F(EmulatedMmaTest, CopyWithoutABarrierIsARace) {
  std::vector<uint32_t> from(64, 7);
  std::vector<uint32_t> out(64);
  Launch(stream_, CopyOverReaders, {}, 64, 256, from.data(), out.data());
  EXPECT_THAT(Synchronize(stream_).message(), HasSubstr("race"));
}

}  // namespace
}  // namespace tidepool::kernels::cuda
