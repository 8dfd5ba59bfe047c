#include "kernels/bandwidth.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "kernels/base/check.h"
#include "kernels/base/thread_pool.h"
#include "kernels/tensor.h"

namespace tidepool::kernels {
namespace {

constexpr int kPasses = 5;
constexpr int kSums = 8;
constexpr int64_t kLineBytes = kSums * sizeof(uint64_t);
// Size of a range. A free thread takes the next range, so a thread that is interrupted does not
// delay a pass.
constexpr int64_t kGrainLines = (4 << 20) / kLineBytes;

// The sums of one thread. They have their own cache line.
struct alignas(kLineBytes) Sums {
  uint64_t lane[kSums] = {};
};

Sums SumOf(const uint64_t* words, int64_t lines) {
  Sums sums;
  for (int64_t line = 0; line < lines; ++line) {
    for (int i = 0; i < kSums; ++i) sums.lane[i] += words[line * kSums + i];
  }
  return sums;
}

}  // namespace

double ReadBandwidth(int threads, size_t bytes, const base::Clock& clock) {
  const int64_t lines = static_cast<int64_t>(bytes) / kLineBytes;
  CHECK(threads >= 1 && lines >= threads) << bytes << " bytes for " << threads << " threads";
  base::ThreadPool pool(threads);
  Buffer buffer(lines * kLineBytes);
  uint64_t* const words = reinterpret_cast<uint64_t*>(buffer.data());
  pool.ParallelFor(lines, kGrainLines, [&](int64_t begin, int64_t end, int) {
    std::fill(words + begin * kSums, words + end * kSums, 1);
  });

  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<Sums> sums(threads);
    const absl::Duration start = clock.Monotonic();
    pool.ParallelFor(lines, kGrainLines, [&](int64_t begin, int64_t end, int worker) {
      const Sums part = SumOf(words + begin * kSums, end - begin);
      for (int i = 0; i < kSums; ++i) sums[worker].lane[i] += part.lane[i];
    });
    const double seconds = absl::ToDoubleSeconds(clock.Monotonic() - start);
    // Use the sums. Otherwise the compiler would remove the loop above.
    uint64_t total = 0;
    for (const Sums& part : sums) {
      for (const uint64_t lane : part.lane) total += lane;
    }
    CHECK_EQ(total, static_cast<uint64_t>(lines * kSums));
    if (seconds > 0) best = std::max(best, static_cast<double>(lines * kLineBytes) / seconds);
  }
  return best;
}

}  // namespace tidepool::kernels
