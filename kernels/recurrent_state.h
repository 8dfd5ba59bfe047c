// Recurrent state of layers that do not attend, and where it is in memory.
#ifndef TIDEPOOL_KERNELS_RECURRENT_STATE_H_
#define TIDEPOOL_KERNELS_RECURRENT_STATE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tidepool::kernels {

// Where a unit is in a state: in which of its blocks (parts), and at which byte of the block.
struct StateUnit {
  int32_t part = 0;
  size_t offset = 0;  // a multiple of kAlignment
};

// One array of a layer's recurrent state, for example the matrices of a delta net. It has units of
// unit_bytes each.
struct StateArray {
  std::byte* arena = nullptr;
  size_t block_bytes = 0;
  size_t unit_bytes = 0;
  std::vector<StateUnit> units;

  // Returns the address of a unit in the state that consists of `blocks`.
  std::byte* Unit(absl::Span<const int32_t> blocks, int64_t unit) const {
    const StateUnit& place = units[unit];
    return arena + blocks[place.part] * block_bytes + place.offset;
  }
};

// A copy of the state after some rows of a span.
struct StateSnapshot {
  int64_t rows = 0;
  absl::Span<const int32_t> blocks;
};

// A part of the batch that belongs to one sequence: rows [first_row, first_row + rows) of the
// batch.
struct StateSpan {
  int64_t first_row = 0;
  int64_t rows = 0;
  absl::Span<const int32_t> in;  // blocks of the state before the rows; empty: the state is zero
  absl::Span<const int32_t>
      out;  // blocks that get the state after the rows; may be the same as `in`
  absl::Span<const StateSnapshot> snapshots;  // ascending; each has 0 < rows <= the span's rows
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_RECURRENT_STATE_H_
