// RandomBlocks: generates bell-shaped quantised weights as fast as memory can be written.
#ifndef TIDEPOOL_TOOLS_SYNTHETIC_RANDOM_BLOCKS_H_
#define TIDEPOOL_TOOLS_SYNTHETIC_RANDOM_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "engine/checkpoint/ggml_type.h"

namespace tidepool::tools {

// The generator splitmix64. Each seed gives another stream of numbers. Thread-compatible.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // Approximately normal with mean 0 and deviation 1: a sum of uniform numbers. The result is the
  // same on every machine.
  float Bell();

 private:
  uint64_t state_;
};

// Holds a few thousand pieces of quantised weights. A row is a random sequence of these pieces. So
// rows differ, but weights are quantised only once. Immutable, thread-safe.
class RandomBlocks {
 public:
  // The weights have this standard deviation. Requires: `columns`, the length of a row, is a
  // multiple of the type's block size.
  RandomBlocks(engine::GgmlType type, int64_t columns, float deviation, uint64_t seed);
  // Each row is one piece with values from `fill`. Requires: columns is a multiple of the type's
  // block size.
  RandomBlocks(engine::GgmlType type, int64_t columns, uint64_t seed,
               const std::function<void(Random*, absl::Span<float>)>& fill);

  // Number of columns in a piece, for rows of this number of columns.
  static int64_t PieceColumns(int64_t columns) {
    if (columns % 256 == 0) return 256;
    return columns % 32 == 0 ? 32 : columns;
  }

  size_t row_bytes() const { return pieces_per_row_ * piece_bytes_; }
  // Writes one row. The same seed gives the same row.
  void FillRow(uint64_t seed, std::byte* out) const;

 private:
  void Make(engine::GgmlType type, int64_t elements, uint64_t seed,
            const std::function<void(Random*, absl::Span<float>)>& fill);

  int64_t pieces_per_row_;
  size_t piece_bytes_;
  std::vector<std::byte> pieces_;
};

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_SYNTHETIC_RANDOM_BLOCKS_H_
