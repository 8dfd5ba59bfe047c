// RandomBlocks: bell-shaped quantised weights, generated at the speed of memory writes.
#ifndef TIDEPOOL_TOOLS_SYNTHETIC_RANDOM_BLOCKS_H_
#define TIDEPOOL_TOOLS_SYNTHETIC_RANDOM_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "engine/checkpoint/ggml_type.h"

namespace tidepool::tools {

// splitmix64: a stream of numbers for each seed. Thread-compatible.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // Approximately normal with mean 0 and deviation 1: a sum of uniform numbers, the same on every
  // machine.
  float Bell();

 private:
  uint64_t state_;
};

// A few thousand pieces of quantised weights. Rows are random sequences of pieces, so rows differ
// and weights are quantised only once. Immutable, thread-safe.
class RandomBlocks {
 public:
  // Weights with this standard deviation. Requires: `columns`, the length of a row, is a multiple
  // of 32, and of 256 for types with blocks of 256 elements.
  RandomBlocks(engine::GgmlType type, int64_t columns, float deviation, uint64_t seed);
  // Rows of one piece each, with values from `fill`. Requires: columns is a multiple of the block.
  RandomBlocks(engine::GgmlType type, int64_t columns, uint64_t seed,
               const std::function<void(Random*, absl::Span<float>)>& fill);

  // Columns of a piece, for rows of this many columns.
  static int64_t PieceColumns(int64_t columns) { return columns % 256 == 0 ? 256 : 32; }

  size_t row_bytes() const { return pieces_per_row_ * piece_bytes_; }
  // Writes one row; equal seeds give equal rows.
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
