// The last step of attention for a segment: the sums of the values, multiplied by their shares.
#ifndef TIDEPOOL_KERNELS_CUDA_ATTENTION_FOLD_CU_H_
#define TIDEPOOL_KERNELS_CUDA_ATTENTION_FOLD_CU_H_

#include <cstdint>

#include "kernels/cuda/attention_block.cu.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_store_layout.cu.h"
#include "kernels/cuda/rows_device.cu.h"

namespace tidepool::kernels::cuda {

template <DType kType, int R, int T>
class AttendFold {
 public:
  TIDEPOOL_DEVICE explicit AttendFold(const AttendBlock<R, T>& block)
      : block_(block), args_(block.args), task_(block.task) {}

  // Adds up the values of the segment. If the span is divided, stores the sums as parts. Otherwise
  // merges them into the output rows.
  TIDEPOOL_DEVICE void Fold(int segment) const {
    ForItems([&](int v, int col) {
      float sums[R][T] = {};
      const int last = (task_.count - v < R ? task_.count : v + R) - 1;
      // The ranges of the vectors are in ascending order.
      const TokenRange first_sees = block_.Visible(segment, v);
      const TokenRange last_sees = block_.Visible(segment, last);
      const TokenRange any = {first_sees.begin, last_sees.end};
      const TokenRange all = {last_sees.begin, first_sees.end};
      for (int token = any.begin / kChunk * kChunk; token < any.end; token += kChunk) {
        const KvHead head = args_.values.At(block_.BlockOf(segment, token), task_.kv_head);
        if (token >= all.begin && token + kChunk <= all.end) {
          FoldTokens<false>(head, segment, token, v, col, sums);
        } else {
          FoldTokens<true>(head, segment, token, v, col, sums);
        }
      }
      Store(segment, v, col, sums);
    });
  }

  // Computes the output rows from their sums, if the span is not divided.
  TIDEPOOL_DEVICE void Finish() const {
    ForItems([&](int first, int first_col) {
      for (int v = first; v < first + R && v < task_.count; ++v) {
        const int head = block_.HeadOf(v);
        const int64_t row = block_.span.first_row + block_.RowOf(v);
        const FinishFactors factors = FinishOf(args_, head, {block_.maxima[v], block_.sums[v]});
        for (int c = first_col; c < first_col + T && c < args_.values.dim; ++c) {
          const int64_t col = int64_t{head} * args_.values.dim + c;
          float& out = args_.out[row * args_.out_stride + col];
          out = FinishSum(args_, factors, out, row, col);
        }
      }
    });
  }

 private:
  static constexpr int kChunk = 16 / T;  // number of tokens that are loaded together
  static_assert(kKvBlockTokens % kChunk == 0);

  // Calls function(first vector, first column) for each part of the sums that this thread computes.
  // It is the same part in each segment.
  template <typename Function>
  TIDEPOOL_DEVICE void ForItems(Function function) const {
    const int groups = (args_.values.dim + T - 1) / T;
    for (int item = ThreadIndex(); item < groups * T; item += kAttendThreads) {
      const int v = item / groups * R;
      if (v < task_.count) function(v, item % groups * T);
    }
  }

  // Loads kChunk tokens of a block.
  TIDEPOOL_DEVICE void LoadValues(const KvHead& head, int token, int col,
                                  float (&out)[kChunk][T]) const {
    const int dim = args_.values.dim;
    TIDEPOOL_UNROLL
    for (int i = 0; i < kChunk; ++i) {
      const int64_t at = int64_t{token + i} * dim + col;
      if (T == 1 || args_.aligned_values) {
        LoadElements<kType>(head, at, out[i]);
      } else {
        TIDEPOOL_UNROLL
        for (int c = 0; c < T; ++c) {
          float one[1] = {};
          if (col + c < dim) LoadElements<kType>(head, at + c, one);
          out[i][c] = one[0];
        }
      }
      if constexpr (kType == DType::kQ8_0) {
        const int64_t scale = (token + i) * (dim / kQuantBlock) + col / kQuantBlock;
        const float factor = HalfValue(head.scales[scale]);
        TIDEPOOL_UNROLL
        for (int c = 0; c < T; ++c) out[i][c] = out[i][c] * factor;
      }
    }
  }

  // Like LoadValues, if values are the first elements of keys. Then the tokens of a column are
  // neighbours.
  TIDEPOOL_DEVICE void LoadValuesInKeys(const KvHead& head, int token, int col,
                                        float (&out)[kChunk][T]) const {
    TIDEPOOL_UNROLL
    for (int c = 0; c < T; ++c) {
      float values[kChunk] = {};
      if (col + c < args_.values.dim) {
        LoadElements<kType>(head, int64_t{col + c} * kKvBlockTokens + token, values);
      }
      if constexpr (kType == DType::kQ8_0) {
        float scales[kChunk];
        LoadScales(head, (col + c) / kQuantBlock * kKvBlockTokens + token, scales);
        TIDEPOOL_UNROLL
        for (int i = 0; i < kChunk; ++i) values[i] = values[i] * scales[i];
      }
      TIDEPOOL_UNROLL
      for (int i = 0; i < kChunk; ++i) out[i][c] = values[i];
    }
  }

  // Adds the values of kChunk tokens. With kMasked, each vector gets only those that it sees. A
  // token that a vector does not see cannot be multiplied by zero, because its value may be NaN.
  template <bool kMasked>
  TIDEPOOL_DEVICE void FoldTokens(const KvHead& head, int segment, int token, int v, int col,
                                  float (&sums)[R][T]) const {
    float values[kChunk][T];
    if (args_.values_in_keys) {
      LoadValuesInKeys(head, token % kKvBlockTokens, col, values);
    } else {
      LoadValues(head, token % kKvBlockTokens, col, values);
    }
    TIDEPOOL_UNROLL
    for (int r = 0; r < R; ++r) {
      const TokenRange sees = kMasked ? block_.Visible(segment, v + r) : TokenRange{0, 0};
      TIDEPOOL_UNROLL
      for (int i = 0; i < kChunk; i += 4) {
        const F32x4 four = block_.wide_scores[((v + r) * kScoreStride + token + i) / 4];
        const float shares[4] = {four.x, four.y, four.z, four.w};
        TIDEPOOL_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int at = token + i + j;
          const bool visible = !kMasked || (at >= sees.begin && at < sees.end);
          TIDEPOOL_UNROLL
          for (int c = 0; c < T; ++c) {
            const float sum = __builtin_fmaf(shares[j], values[i + j][c], sums[r][c]);
            sums[r][c] = visible ? sum : sums[r][c];
          }
        }
      }
    }
  }

  TIDEPOOL_DEVICE void Store(int segment, int first, int first_col,
                             const float (&sums)[R][T]) const {
    TIDEPOOL_UNROLL
    for (int r = 0; r < R; ++r) {
      const int v = first + r;
      if (v >= task_.count) continue;
      if (block_.IsSplit()) {
        const TokenRange sees = block_.Visible(segment, v);
        float* part = args_.part_sums + block_.PartOf(segment, v) * args_.part_stride;
        TIDEPOOL_UNROLL
        for (int c = 0; c < T; ++c) {
          if (sees.begin < sees.end && first_col + c < args_.values.dim) {
            part[first_col + c] = sums[r][c];
          }
        }
        continue;
      }
      const float keep = block_.keeps[v];
      const float take = block_.takes[v];
      float* out = args_.out + (block_.span.first_row + block_.RowOf(v)) * args_.out_stride +
                   int64_t{block_.HeadOf(v)} * args_.values.dim;
      TIDEPOOL_UNROLL
      for (int c = 0; c < T; ++c) {
        if (first_col + c >= args_.values.dim) continue;
        const float old = segment == task_.begin ? 0.0f : out[first_col + c];
        out[first_col + c] = take < 0 ? old : __builtin_fmaf(sums[r][c], take, old * keep);
      }
    }
  }

  const AttendBlock<R, T>& block_;
  const AttendArgs& args_;
  const AttendTask& task_;
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_ATTENTION_FOLD_CU_H_
