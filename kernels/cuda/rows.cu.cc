// Row ops that compute each element separately.
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/rows_elements.cu.h"
#include "kernels/math.h"

namespace tidepool::kernels::cuda {
namespace {

// The addresses of a view, for kernels.
struct Input {
  const float* data;
  int64_t stride;
  explicit Input(ConstMatrixView view) : data(view.data), stride(view.stride) {}
  TIDEPOOL_DEVICE float At(int64_t row, int64_t col) const { return data[row * stride + col]; }
};
struct Output {
  float* data;
  int64_t stride;
  explicit Output(MatrixView view) : data(view.data), stride(view.stride) {}
  TIDEPOOL_DEVICE float& At(int64_t row, int64_t col) const { return data[row * stride + col]; }
};

struct ZeroElement {
  Output out;
  TIDEPOOL_DEVICE void operator()(int64_t row, int64_t col) const { out.At(row, col) = 0; }
};

struct GatherElement {
  Input x;
  const int64_t* rows;
  Output out;
  TIDEPOOL_DEVICE void operator()(int64_t row, int64_t col) const {
    out.At(row, col) = x.At(rows[row], col);
  }
};

struct CopyHeadElement {
  HeadCopy copy;
  Input from;
  Output to;
  TIDEPOOL_DEVICE void operator()(int64_t row, int64_t index) const {
    const int head = static_cast<int>(index) / copy.cols;
    const int col = static_cast<int>(index) % copy.cols;
    to.At(row, int64_t{head} * copy.to_dim + copy.to_first + col) =
        from.At(row, int64_t{head} * copy.from_dim + copy.from_first + col);
  }
};

struct AddElement {
  Input x;
  Output out;
  TIDEPOOL_DEVICE void operator()(int64_t row, int64_t col) const {
    out.At(row, col) = out.At(row, col) + x.At(row, col);
  }
};

struct AddScaledElement {
  Input x;
  float scale;
  Output out;
  TIDEPOOL_DEVICE void operator()(int64_t row, int64_t col) const {
    out.At(row, col) = __builtin_fmaf(scale, x.At(row, col), out.At(row, col));
  }
};

struct ScaleElement {
  Output x;
  float scale;
  TIDEPOOL_DEVICE void operator()(int64_t row, int64_t col) const {
    x.At(row, col) = x.At(row, col) * scale;
  }
};

struct AddGatedElement {
  Input x;
  const float* gate;
  Output out;
  TIDEPOOL_DEVICE void operator()(int64_t row, int64_t col) const {
    out.At(row, col) = __builtin_fmaf(Sigmoid(gate[row]), x.At(row, col), out.At(row, col));
  }
};

// Rotates a pair of elements. `index` is the number of the pair in the row.
struct RotatePair {
  Output x;
  int head_dim;
  int pairs;
  RopeStyle style;
  Input cos;
  Input sin;
  TIDEPOOL_DEVICE void operator()(int64_t row, int64_t index) const {
    const int head = static_cast<int>(index) / pairs;
    const int pair = static_cast<int>(index) % pairs;
    const bool halves = style == RopeStyle::kHalves;
    const int64_t at = int64_t{head} * head_dim + (halves ? pair : 2 * pair);
    float& first = x.At(row, at);
    float& second = x.At(row, at + (halves ? pairs : 1));
    const float a = first;
    const float b = second;
    const float c = cos.At(row, pair);
    const float s = sin.At(row, pair);
    first = __builtin_fmaf(a, c, -(b * s));
    second = __builtin_fmaf(b, c, a * s);
  }
};

}  // namespace

void ZeroRows(const CudaContext& context, MatrixView out) {
  ForElements(context, out.rows, out.cols, ZeroElement{Output(out)});
}

void GatherRows(const CudaContext& context, ConstMatrixView x, absl::Span<const int64_t> rows,
                MatrixView out) {
  if (out.rows == 0 || out.cols == 0) return;
  ForElements(context, out.rows, out.cols,
              GatherElement{Input(x), context.staging->Carry(rows), Output(out)});
}

void CopyHeads(const CudaContext& context, const HeadCopy& copy, ConstMatrixView from,
               MatrixView to) {
  ForElements(context, from.rows, int64_t{copy.heads} * copy.cols,
              CopyHeadElement{copy, Input(from), Output(to)});
}

void AddRows(const CudaContext& context, ConstMatrixView x, MatrixView out) {
  ForElements(context, x.rows, x.cols, AddElement{Input(x), Output(out)});
}

void AddScaledRows(const CudaContext& context, ConstMatrixView x, float scale, MatrixView out) {
  ForElements(context, x.rows, x.cols, AddScaledElement{Input(x), scale, Output(out)});
}

void ScaleRows(const CudaContext& context, MatrixView x, float scale) {
  ForElements(context, x.rows, x.cols, ScaleElement{Output(x), scale});
}

void AddGatedRows(const CudaContext& context, ConstMatrixView x, absl::Span<const float> gate,
                  MatrixView out) {
  ForElements(context, x.rows, x.cols, AddGatedElement{Input(x), gate.data(), Output(out)});
}

void RotateRows(const CudaContext& context, MatrixView x, const Rotation& rotation) {
  const auto& [head_dim, style, cos, sin] = rotation;
  const int pairs = static_cast<int>(cos.cols);
  ForElements(context, x.rows, x.cols / head_dim * pairs,
              RotatePair{Output(x), head_dim, pairs, style, Input(cos), Input(sin)});
}

}  // namespace tidepool::kernels::cuda
