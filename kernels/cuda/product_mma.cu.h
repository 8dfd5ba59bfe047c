// The kernel for int8 activations and a quantised weight on tensor cores, for up to 8 rows. A warp
// computes one panel: its 8 outputs are the columns of B, and the rows of x are rows of A. So one
// step multiplies a block of 32 columns, and a lane keeps the chains of two outputs of one row.
//
// Asynchronous copies bring the bytes of the panel to shared memory, in stages of 8 blocks. Each
// warp has its own ring of stages. All warps of a block of threads share the rows of x, a chunk of
// columns at a time, in the order of the fragments of A.
#ifndef TIDEPOOL_KERNELS_CUDA_PRODUCT_MMA_CU_H_
#define TIDEPOOL_KERNELS_CUDA_PRODUCT_MMA_CU_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/product_store.cu.h"
#include "kernels/cuda/quant_block.cu.h"

namespace tidepool::kernels::cuda {

inline constexpr int kMmaWarps = 4;
inline constexpr int kMmaThreads = kMmaWarps * kWarpLanes;
inline constexpr int kMmaStageBlocks = 8;

// The ring of stages of a warp.
template <DType kType>
struct PanelRing {
  static constexpr QuantFormat kFormat = FormatOf(kType);
  static constexpr int kStages = 6;
  static constexpr int kStageBytes = kMmaStageBlocks / kFormat.blocks * kFormat.record_bytes();
  // Bytes of one asynchronous copy. Panels are aligned to this size.
  static constexpr int kCopyBytes = kFormat.record_bytes() % 16 == 0 ? 16 : 8;
  static constexpr int kBytes = kStages * kStageBytes;
  static_assert(kFormat.record_bytes() % kCopyBytes == 0 && kStageBytes % 16 == 0);
};

// The rows of x in shared memory: a chunk of `blocks` blocks of `rows` rows.
struct MmaRows {
  static constexpr int kBytesPerBlock = kQuantBlock + 3 * static_cast<int>(sizeof(float));

  TIDEPOOL_DEVICE MmaRows(int chunk, int row_count)
      : rows(row_count),
        wide(SharedArray<U32x4>(0, 2 * chunk * row_count)),
        pairs(SharedArray<U32x2>(0, 4 * chunk * row_count)),
        scales(SharedArray<float>(kQuantBlock * chunk * row_count, chunk * row_count)),
        sums(SharedArray<float>((kQuantBlock + 4) * chunk * row_count, chunk * row_count)),
        half_sums(SharedArray<uint32_t>((kQuantBlock + 8) * chunk * row_count, chunk * row_count)) {
  }

  // Loads blocks [first, first + count) of the job's rows. Threads of the block share the work.
  TIDEPOOL_DEVICE void Load(const JobInput& input, const ProductJob& job, int first, int count) {
    for (int i = ThreadIndex(); i < count * rows; i += kMmaThreads) {
      const int row = i / count;
      const int block = i % count;
      const int64_t at =
          (RowOf(input.x_rows, job.first + row) * input.cols + job.column) / kQuantBlock + first +
          block;
      const auto* words = reinterpret_cast<const U32x4*>(input.quants + at * kQuantBlock);
      const U32x4 low = words[0];
      const U32x4 high = words[1];
      const int to = block * rows + row;
      wide[2 * to] = U32x4{low.x, high.x, low.y, high.y};
      wide[2 * to + 1] = U32x4{low.z, high.z, low.w, high.w};
      scales[to] = input.scales[at];
      sums[to] = input.sums[at];
      half_sums[to] = reinterpret_cast<const uint32_t*>(input.half_sums)[at];
    }
  }

  int rows;
  Shared<U32x4> wide;   // [block][row][2]; in the same place as `pairs`
  Shared<U32x2> pairs;  // [block][row][4]: word t of the block's first half, and of its second
  Shared<float> scales;
  Shared<float> sums;
  Shared<uint32_t> half_sums;
};

// A lane's part of one block of x, which is zero for rows that do not exist.
struct MmaActivation {
  U32x2 words = {0, 0};
  float scale = 0;
  float sum = 0;
  int half_sums[2] = {0, 0};
};

TIDEPOOL_DEVICE MmaActivation MmaActivationOf(const MmaRows& x, int block) {
  const int row = LaneIndex() / 4;
  MmaActivation part;
  if (row >= x.rows) return part;
  const int at = block * x.rows + row;
  part.words = x.pairs[4 * at + LaneIndex() % 4];
  part.scale = x.scales[at];
  part.sum = x.sums[at];
  const uint32_t both = x.half_sums[at];
  part.half_sums[0] = static_cast<int16_t>(both & 0xffff);
  part.half_sums[1] = static_cast<int16_t>(both >> 16);
  return part;
}

// Reads a block of a panel in shared memory.
template <DType kType>
struct MmaBlock {
  static constexpr QuantFormat kFormat = FormatOf(kType);

  TIDEPOOL_DEVICE MmaBlock(const Shared<uint32_t>& ring_words, const Shared<uint16_t>& ring_halves,
                           int stage_byte, int block)
      : words(ring_words),
        halves(ring_halves),
        record(stage_byte + (kFormat.blocks == 1 ? block * kFormat.record_bytes() : 0)),
        at(stage_byte + (kFormat.blocks == 1 ? block * kFormat.record_bytes()
                                             : kFormat.head + block * kFormat.block_bytes())) {}

  TIDEPOOL_DEVICE uint32_t Word(int byte, int index) const { return words[byte / 4 + index]; }

  // Sets `low` and `high` to this lane's two words of B: codes of the panel's row lane / 4. With
  // t = lane % 4, `low` has group t of the block, and `high` has group 4 + t.
  TIDEPOOL_DEVICE void Codes(uint32_t* low, uint32_t* high) const {
    const int row = LaneIndex() / 4;
    const int t = LaneIndex() % 4;
    const int codes = at + kFormat.codes();
    const int extra = at + kFormat.extra();
    const int shift = 2 * (t / 2);
    if constexpr (HasCodeTable(kType)) {
      LookUp<kType>(Word(codes, t * kPanelRows + row), low, high);
    } else if constexpr (kFormat.code_bits == 8) {
      *low = Word(codes, t * kPanelRows + row);
      *high = Word(codes, (4 + t) * kPanelRows + row);
    } else if constexpr (kFormat.code_bits == 4) {
      const uint32_t both = Word(codes, t * kPanelRows + row);
      *low = both & 0x0f0f0f0f;
      *high = both >> 4 & 0x0f0f0f0f;
    } else {
      const uint32_t all = Word(codes, t % 2 * kPanelRows + row);
      *low = all >> shift & 0x03030303;
      *high = all >> (shift + 4) & 0x03030303;
    }
    if constexpr (kFormat.extra_bits == 1) {
      const uint32_t bits = Word(extra, row);
      *low |= (bits >> t & 0x01010101) << kFormat.code_bits;
      *high |= (bits >> (t + 4) & 0x01010101) << kFormat.code_bits;
    } else if constexpr (kFormat.extra_bits == 2) {
      const uint32_t bits = Word(extra, t % 2 * kPanelRows + row);
      *low |= (bits >> shift & 0x03030303) << kFormat.code_bits;
      *high |= (bits >> (shift + 4) & 0x03030303) << kFormat.code_bits;
    }
  }

  // Loads the scales of the panel's rows 2t and 2t + 1, with t = lane % 4.
  TIDEPOOL_DEVICE void Scales(BlockScales (&scales)[2]) const {
    const int t = LaneIndex() % 4;
    RawRow<kType> raw[2] = {};
    if constexpr (kType == DType::kMXFP4) {
      const uint32_t both = static_cast<uint16_t>(halves[at / 2 + t]);
      raw[0].step = static_cast<uint16_t>(both & 0xff);
      raw[1].step = static_cast<uint16_t>(both >> 8);
    } else {
      const int first = kFormat.head > 0 ? record : at;
      Split(Word(first, t), &raw[0].step, &raw[1].step);
      if constexpr (kFormat.has_min) {
        Split(Word(first, kPanelRows / 2 + t), &raw[0].min_step, &raw[1].min_step);
      }
      if constexpr (kFormat.halves) {
        Split(Word(at, t), &raw[0].scales, &raw[1].scales);
      } else if constexpr (kFormat.head > 0) {
        SplitBytes(halves[at / 2 + t], &raw[0].scales, &raw[1].scales);
        if constexpr (kFormat.has_min) {
          SplitBytes(halves[at / 2 + kPanelRows / 2 + t], &raw[0].min, &raw[1].min);
        }
      }
    }
    scales[0] = ScalesOf<kType>(raw[0]);
    scales[1] = ScalesOf<kType>(raw[1]);
  }

  TIDEPOOL_DEVICE static void Split(uint32_t both, uint16_t* first, uint16_t* second) {
    *first = static_cast<uint16_t>(both & 0xffff);
    *second = static_cast<uint16_t>(both >> 16);
  }
  TIDEPOOL_DEVICE static void SplitBytes(uint16_t both, uint16_t* first, uint16_t* second) {
    *first = both & 0xff;
    *second = static_cast<uint16_t>(both >> 8);
  }

  Shared<uint32_t> words;
  Shared<uint16_t> halves;
  int record;
  int at;
};

// Adds one block to the two chains of this lane.
template <DType kType>
TIDEPOOL_DEVICE void AddMmaBlock(const MmaBlock<kType>& block, const MmaActivation& x,
                                 float (&sums)[2]) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  uint32_t b[2];
  block.Codes(&b[0], &b[1]);
  BlockScales scales[2];
  block.Scales(scales);
  int dots[4];
  int high_dots[4] = {};
  if constexpr (kFormat.halves) {
    Mma16(x.words.x, 0, b[0], -kFormat.zero * x.half_sums[0], dots);
    Mma16(x.words.y, 0, b[1], -kFormat.zero * x.half_sums[1], high_dots);
  } else {
    const uint32_t a[4] = {x.words.x, 0, x.words.y, 0};
    Mma32(a, b, -kFormat.zero * (x.half_sums[0] + x.half_sums[1]), dots);
  }
  TIDEPOOL_UNROLL
  for (int i = 0; i < 2; ++i) {
    const BlockScales& s = scales[i];
    const int dot = kFormat.halves ? s.scale[0] * dots[i] + s.scale[1] * high_dots[i] : dots[i];
    sums[i] = __builtin_fmaf(s.step * x.scale, static_cast<float>(dot), sums[i]);
    if constexpr (kFormat.has_min && kFormat.halves) {
      const int weighted = s.min[0] * x.half_sums[0] + s.min[1] * x.half_sums[1];
      sums[i] = __builtin_fmaf(s.min_step * x.scale, static_cast<float>(weighted), sums[i]);
    } else if constexpr (kFormat.has_min) {
      sums[i] = __builtin_fmaf(s.min_step, x.sum, sums[i]);
    }
  }
}

// The panel of one warp.
template <DType kType>
class MmaPanel {
 public:
  using Ring = PanelRing<kType>;
  static constexpr int kUnit = Ring::kCopyBytes;
  using Copy = std::conditional_t<kUnit == 16, U32x4, U32x2>;

  // A warp without a panel has 0 blocks.
  TIDEPOOL_DEVICE MmaPanel(const std::byte* panel, int blocks, int first_byte)
      : panel_(panel),
        blocks_(blocks),
        copies_(SharedArray<Copy>(first_byte, Ring::kBytes / kUnit)),
        words_(SharedArray<uint32_t>(first_byte, Ring::kBytes / 4)),
        halves_(SharedArray<uint16_t>(first_byte, Ring::kBytes / 2)) {
    for (int stage = 0; stage + 1 < Ring::kStages; ++stage) Begin(stage);
  }

  // Adds the blocks of a stage. `x` begins at block `first` of the panel.
  TIDEPOOL_DEVICE void Add(int stage, const MmaRows& x, int first, float (&sums)[2]) {
    WaitForCopies<Ring::kStages - 2>();
    WarpBarrier();
    // All lanes have read the stage before, whose place in the ring is free now.
    Begin(stage + Ring::kStages - 1);
    const int left = blocks_ - stage * kMmaStageBlocks;
    const int count = left < kMmaStageBlocks ? left : kMmaStageBlocks;
    const int base = stage % Ring::kStages * Ring::kStageBytes;
    TIDEPOOL_UNROLL_BY(4)
    for (int b = 0; b < count; ++b) {
      const MmaBlock<kType> block(words_, halves_, base, b);
      AddMmaBlock<kType>(block, MmaActivationOf(x, stage * kMmaStageBlocks - first + b), sums);
    }
  }

 private:
  // Begins to copy a stage, if it exists.
  TIDEPOOL_DEVICE void Begin(int stage) {
    const int left = blocks_ - stage * kMmaStageBlocks;
    if (left > 0) {
      const int bytes = left < kMmaStageBlocks
                            ? left / FormatOf(kType).blocks * FormatOf(kType).record_bytes()
                            : Ring::kStageBytes;
      const auto* from = reinterpret_cast<const Copy*>(panel_ + int64_t{stage} * Ring::kStageBytes);
      const int to = stage % Ring::kStages * (Ring::kStageBytes / kUnit);
      for (int i = LaneIndex(); i < bytes / kUnit; i += kWarpLanes) {
        CopyAsync(from + i, copies_, to + i);
      }
    }
    CommitCopies();
  }

  const std::byte* panel_;
  int blocks_;
  Shared<Copy> copies_;  // copies_, words_ and halves_ are the same memory
  Shared<uint32_t> words_;
  Shared<uint16_t> halves_;
};

// `chunk` is a multiple of kMmaStageBlocks.
template <DType kType>
TIDEPOOL_KERNEL_OF(kMmaThreads, 3)
MmaProductKernel(const JobInput input, const JobTable table, int64_t cols, int chunk) {
  const ProductJob job =
      table.outside != nullptr ? table.outside[BlockY()] : table.inside[BlockY()];
  const int panel = BlockX() * kMmaWarps + WarpIndex();
  if (BlockX() * kMmaWarps * kPanelRows >= job.outputs) return;
  const bool exists = panel * kPanelRows < job.outputs;
  const int blocks = static_cast<int>(cols / kQuantBlock);
  const int64_t panel_bytes =
      int64_t{blocks / FormatOf(kType).blocks} * FormatOf(kType).record_bytes();
  MmaPanel<kType> weights(
      job.panels + (exists ? panel * panel_bytes : 0), exists ? blocks : 0,
      chunk * job.rows * MmaRows::kBytesPerBlock + WarpIndex() * PanelRing<kType>::kBytes);
  MmaRows x(chunk, job.rows);
  float sums[2] = {0, 0};
  for (int first = 0; first < blocks; first += chunk) {
    const int count = blocks - first < chunk ? blocks - first : chunk;
    if (first > 0) BlockBarrier();
    x.Load(input, job, first, count);
    BlockBarrier();
    if (!exists) continue;
    for (int at = first; at < first + count; at += kMmaStageBlocks) {
      weights.Add(at / kMmaStageBlocks, x, first, sums);
    }
  }
  const int row = LaneIndex() / 4;
  if (!exists || row >= job.rows) return;
  for (int i = 0; i < 2; ++i) {
    StoreOutput(input, job, row, panel * kPanelRows + LaneIndex() % 4 * 2 + i, sums[i]);
  }
}

// Returns the number of blocks of x that are in shared memory at the same time.
constexpr int MmaChunk(int rows, int64_t cols) {
  constexpr int kRowsBytes = 56 << 10;
  const int blocks = static_cast<int>(cols / kQuantBlock);
  const int fitting =
      kRowsBytes / (rows * MmaRows::kBytesPerBlock) / kMmaStageBlocks * kMmaStageBlocks;
  return std::min((blocks + kMmaStageBlocks - 1) / kMmaStageBlocks * kMmaStageBlocks, fitting);
}

template <DType kType>
constexpr int MmaSharedBytes(int rows, int64_t cols) {
  return MmaChunk(rows, cols) * rows * MmaRows::kBytesPerBlock +
         kMmaWarps * PanelRing<kType>::kBytes;
}

template <DType kType>
void LaunchMmaProduct(const ProductLaunch& launch) {
  const int panels = (launch.max_outputs + kPanelRows - 1) / kPanelRows;
  Launch(launch.stream, MmaProductKernel<kType>,
         {(panels + kMmaWarps - 1) / kMmaWarps, launch.jobs}, kMmaThreads,
         MmaSharedBytes<kType>(launch.rows, launch.cols), launch.input, launch.table, launch.cols,
         MmaChunk(launch.rows, launch.cols));
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_PRODUCT_MMA_CU_H_
