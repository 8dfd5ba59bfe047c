#include "kernels/cpu/recurrent.h"

#include <algorithm>

#include "kernels/math.h"
#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

const RecurrentKernels& KernelsOf(const CpuContext& context) { return context.kernels->recurrent; }

float* FloatsOf(const StateArray& state, absl::Span<const int32_t> blocks, int64_t unit) {
  return reinterpret_cast<float*>(state.Unit(blocks, unit));
}

// Calls advance(rows) for the rows between two copies of the state, and store(blocks) for each
// copy.
template <typename Advance, typename Store>
void ForSegments(const StateSpan& span, Advance advance, Store store) {
  int64_t done = 0;
  const auto reach = [&](int64_t rows) {
    if (rows > done) advance(done, rows - done);
    done = rows;
  };
  for (const StateSnapshot& snapshot : span.snapshots) {
    reach(snapshot.rows);
    store(snapshot.blocks);
  }
  reach(span.rows);
}

// Returns the number of rows of all spans.
int64_t RowsOf(absl::Span<const StateSpan> spans) {
  int64_t rows = 0;
  for (const StateSpan& span : spans) rows += span.rows;
  return rows;
}

// The memory of a thread that computes a unit of a convolution.
struct ConvScratch {
  float weight[kMaxConvKernel][kStateChannels];
  float bias[kStateChannels];
  float inputs[kMaxConvKernel - 1][kStateChannels];
};

void LoadConvWeights(const CausalConvCall& call, int64_t first, int channels,
                     ConvScratch* scratch) {
  const float* weight = call.weight.data() + first * call.kernel;
  for (int j = 0; j < call.kernel; ++j) {
    for (int c = 0; c < channels; ++c) scratch->weight[j][c] = weight[c * call.kernel + j];
    std::fill(scratch->weight[j] + channels, scratch->weight[j] + kStateChannels, 0.0f);
  }
  std::fill_n(scratch->bias, kStateChannels, 0.0f);
  if (!call.bias.empty()) std::copy_n(call.bias.data() + first, channels, scratch->bias);
}

// Computes the rows of a span for the channels of one unit.
void ConvolveUnit(const CpuContext& context, const CausalConvCall& call, const StateSpan& span,
                  int64_t unit) {
  const int64_t first = unit * kStateChannels;
  const int taps = call.kernel - 1;
  ConvScratch scratch;
  ConvTile tile;
  tile.channels = static_cast<int>(std::min(kStateChannels, call.x.cols - first));
  LoadConvWeights(call, first, tile.channels, &scratch);
  tile.kernel = call.kernel;
  tile.activation = call.activation;
  tile.x_stride = call.x.stride;
  tile.in_gate_stride = call.in_gate.stride;
  tile.out_gate_stride = call.out_gate.stride;
  tile.weight = scratch.weight[0];
  tile.bias = scratch.bias;
  for (int j = 0; j < taps; ++j) {
    tile.inputs[j] = scratch.inputs[j];
    std::fill_n(tile.inputs[j], kStateChannels, 0.0f);
    if (span.in.empty()) continue;
    std::copy_n(FloatsOf(call.state, span.in, unit) + j * kStateChannels, tile.channels,
                tile.inputs[j]);
  }
  const auto store = [&](absl::Span<const int32_t> blocks) {
    float* floats = FloatsOf(call.state, blocks, unit);
    for (int j = 0; j < taps; ++j) {
      std::copy_n(tile.inputs[j], kStateChannels, floats + j * kStateChannels);
    }
  };
  const auto advance = [&](int64_t begin, int64_t rows) {
    const int64_t row = span.first_row + begin;
    tile.rows = rows;
    tile.x = call.x.Row(row) + first;
    if (call.in_gate.data != nullptr) tile.in_gate = call.in_gate.Row(row) + first;
    if (call.out_gate.data != nullptr) tile.out_gate = call.out_gate.Row(row) + first;
    KernelsOf(context).convolve(&tile);
  };
  ForSegments(span, advance, store);
  store(span.out);
}

// Replaces q and k by q' and k', and a and b by `keep` and `beta`, in one row.
void PrepareRow(const CpuContext& context, const DeltaNetCall& call, int64_t row) {
  const int k_dim = call.KeyDim();
  for (int h = 0; h < call.k_heads; ++h) {
    const int64_t at = int64_t{h} * k_dim;
    KernelsOf(context).normalize_length(call.q.Row(row) + at, k_dim, call.norm_eps, call.scale);
    KernelsOf(context).normalize_length(call.k.Row(row) + at, k_dim, call.norm_eps, 1);
  }
  float* a = call.a.Row(row);
  float* b = call.b.Row(row);
  for (int h = 0; h < call.v_heads; ++h) {
    a[h] = Exp(call.decay[h] * Softplus(a[h] + call.dt_bias[h]));
    b[h] = Sigmoid(b[h]);
  }
}

// Columns of one V head's state, for the rows of one span.
struct DeltaColumns {
  const DeltaNetCall& call;
  const StateSpan& span;
  int head;
  int first;
  int count;  // as in DeltaTile

  int64_t StateFloats() const { return int64_t{call.KeyDim()} * count; }
  float* StateAt(absl::Span<const int32_t> blocks) const {
    return FloatsOf(call.state, blocks, head) + int64_t{first} * call.KeyDim();
  }
  DeltaTile TileAt(int64_t row) const {
    const int64_t k_first = int64_t{call.KeyHead(head)} * call.KeyDim();
    const int64_t v_first = int64_t{head} * call.ValueDim() + first;
    DeltaTile tile;
    tile.k_dim = call.KeyDim();
    tile.columns = count;
    tile.q = call.q.Row(row) + k_first;
    tile.q_stride = call.q.stride;
    tile.k = call.k.Row(row) + k_first;
    tile.k_stride = call.k.stride;
    tile.v = call.v.Row(row) + v_first;
    tile.v_stride = call.v.stride;
    tile.keep = call.a.Row(row) + head;
    tile.keep_stride = call.a.stride;
    tile.beta = call.b.Row(row) + head;
    tile.beta_stride = call.b.stride;
    tile.out = call.out.Row(row) + v_first;
    tile.out_stride = call.out.stride;
    return tile;
  }
};

// Copies a state of `count` columns to one of kDeltaTileCols, or back.
void WidenState(const DeltaColumns& columns, const float* narrow, float* wide) {
  for (int i = 0; i < columns.call.KeyDim(); ++i) {
    std::copy_n(narrow + int64_t{i} * columns.count, columns.count,
                wide + int64_t{i} * kDeltaTileCols);
  }
}
void NarrowState(const DeltaColumns& columns, const float* wide, float* narrow) {
  for (int i = 0; i < columns.call.KeyDim(); ++i) {
    std::copy_n(wide + int64_t{i} * kDeltaTileCols, columns.count,
                narrow + int64_t{i} * columns.count);
  }
}

// Computes whole tiles. The first row reads the state from the span's `in`. Later rows read it from
// `out`.
void AdvanceTiles(const CpuContext& context, const DeltaColumns& columns) {
  const StateSpan& span = columns.span;
  float* const state = columns.StateAt(span.out);
  const float* before = state;
  if (span.in.empty()) {
    std::fill_n(state, columns.StateFloats(), 0.0f);
  } else {
    before = columns.StateAt(span.in);
  }
  const auto advance = [&](int64_t begin, int64_t rows) {
    DeltaTile tile = columns.TileAt(span.first_row + begin);
    tile.rows = rows;
    tile.before = begin == 0 ? before : state;
    tile.after = state;
    KernelsOf(context).advance_delta(tile);
  };
  ForSegments(span, advance, [&](absl::Span<const int32_t> blocks) {
    std::copy_n(state, columns.StateFloats(), columns.StateAt(blocks));
  });
}

// Computes a tile of fewer than kDeltaTileCols columns. While the rows are computed, the state is
// padded to a whole tile.
void AdvanceNarrowTile(const CpuContext& context, const DeltaColumns& columns) {
  const StateSpan& span = columns.span;
  float wide[kMaxDeltaKeyDim * kDeltaTileCols] = {};
  if (!span.in.empty()) WidenState(columns, columns.StateAt(span.in), wide);
  const auto advance = [&](int64_t begin, int64_t rows) {
    DeltaTile tile = columns.TileAt(span.first_row + begin);
    tile.rows = rows;
    tile.before = tile.after = wide;
    KernelsOf(context).advance_delta(tile);
  };
  const auto store = [&](absl::Span<const int32_t> blocks) {
    NarrowState(columns, wide, columns.StateAt(blocks));
  };
  ForSegments(span, advance, store);
  store(span.out);
}

// Computes the columns [first, first + kDeltaTileCols * delta_tiles) of a V head, as far as they
// exist.
void AdvanceGroup(const CpuContext& context, const DeltaNetCall& call, const StateSpan& span,
                  int head, int first) {
  const int group = kDeltaTileCols * KernelsOf(context).delta_tiles;
  const int end = std::min(call.ValueDim(), first + group);
  while (first < end) {
    int count = end - first;
    if (count > kDeltaTileCols) count -= count % kDeltaTileCols;
    const DeltaColumns columns{call, span, head, first, count};
    if (count < kDeltaTileCols) {
      AdvanceNarrowTile(context, columns);
    } else {
      AdvanceTiles(context, columns);
    }
    first += count;
  }
}

}  // namespace

void ConvolveRows(const CpuContext& context, const CausalConvCall& call) {
  const int64_t units = ConvUnits(call.x.cols);
  const int64_t tasks = units * static_cast<int64_t>(call.spans.size());
  // the activation costs more than the products
  const int64_t macs = RowsOf(call.spans) * call.x.cols * (call.kernel + 8);
  context.pool->ParallelFor(tasks, TaskGrain(context, tasks, macs),
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t i = begin; i < end; ++i) {
                                const StateSpan& span = call.spans[i / units];
                                if (span.rows > 0) ConvolveUnit(context, call, span, i % units);
                              }
                            });
}

void AdvanceDeltaNet(const CpuContext& context, const DeltaNetCall& call) {
  constexpr int64_t kRowGrain = 8;
  context.pool->ParallelFor(call.q.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) PrepareRow(context, call, row);
  });
  const int group = kDeltaTileCols * KernelsOf(context).delta_tiles;
  const int groups = (call.ValueDim() + group - 1) / group;
  const int64_t per_span = int64_t{call.v_heads} * groups;
  const int64_t tasks = per_span * static_cast<int64_t>(call.spans.size());
  const int64_t macs = RowsOf(call.spans) * call.KeyDim() * call.v.cols * 3;
  context.pool->ParallelFor(tasks, TaskGrain(context, tasks, macs),
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t i = begin; i < end; ++i) {
                                const StateSpan& span = call.spans[i / per_span];
                                if (span.rows == 0) continue;
                                const int64_t part = i % per_span;
                                AdvanceGroup(context, call, span, static_cast<int>(part / groups),
                                             static_cast<int>(part % groups) * group);
                              }
                            });
}

void NormalizeGated(const CpuContext& context, const GatedNormArgs& args,
                    const ActivationBuffer& out) {
  constexpr int64_t kRowGrain = 8;
  const ConstMatrixView& x = args.x;
  const KernelTable& kernels = *context.kernels;
  const auto head_dim = static_cast<int64_t>(args.weight.size());
  const int64_t blocks = x.cols / kQuantBlock;
  context.pool->ParallelFor(x.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      float* values = out.values.Row(i);
      for (int64_t at = 0; at < x.cols; at += head_dim) {
        kernels.norm(x.Row(i) + at, args.weight.data(), head_dim, args.eps, values + at);
      }
      kernels.glu[static_cast<int>(GluForm::kSwiGlu)](args.z.Row(i), values, x.cols, {}, values);
      if (out.quants == nullptr) continue;
      kernels.quantize(values, blocks,
                       {out.quants + i * x.cols, out.scales + i * blocks, out.sums + i * blocks,
                        out.half_sums + 2 * i * blocks});
    }
  });
}

}  // namespace tidepool::kernels
