// Recurrent ops: their bits do not depend on how rows are divided into spans, and their results
// equal examples that were computed by hand.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/state_memory.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

constexpr Isa kIsas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni};

// Returns every CPU backend that this machine supports.
std::vector<std::unique_ptr<KernelBackend>> CpuBackends(int threads) {
  std::vector<std::unique_ptr<KernelBackend>> backends;
  for (const Isa isa : kIsas) {
    auto made = MakeCpuBackend({.threads = threads, .isa = isa});
    if (made.ok()) backends.push_back(*std::move(made));
  }
  return backends;
}

std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(FloatBits(value));
  return bits;
}

// A convolution and a delta net, one after the other, over the rows of two sequences.
class Layer {
 public:
  static constexpr int64_t kRows = 100;
  static constexpr int kKHeads = 2;
  static constexpr int kVHeads = 4;
  static constexpr int kKDim = 24;
  static constexpr int kVDim = 40;
  static constexpr int kKernel = 4;
  static constexpr int64_t kKeys = int64_t{kKHeads} * kKDim;
  static constexpr int64_t kValues = int64_t{kVHeads} * kVDim;
  static constexpr int64_t kChannels = 2 * kKeys + kValues;
  // A sequence has two states, which are read and written alternately, and the states of its
  // snapshots.
  static constexpr int kTurns = 2;
  static constexpr int kStates = 40;

  explicit Layer(KernelBackend* backend)
      : backend_(*backend),
        conv_(ConvUnits(kChannels), ConvUnitBytes(kKernel), 2 * kStates),
        delta_(kVHeads, DeltaUnitBytes(kKDim, kVDim), 2 * kStates),
        x_(Noise(1).Floats(2 * kRows * kChannels)),
        a_(Noise(2).Floats(2 * kRows * kVHeads)),
        b_(Noise(3).Floats(2 * kRows * kVHeads, 2)),
        weight_(Noise(4).Floats(kChannels * kKernel)),
        decay_({-0.1f, -0.5f, -1, -8}),
        dt_bias_(Noise(5).Floats(kVHeads)) {}

  // A span: rows [first, first + rows) of a sequence, and the rows after which snapshots are taken.
  struct Part {
    int sequence;
    int64_t first;
    int64_t rows;
    std::vector<int64_t> snapshots = {};
    bool in_place = false;
  };

  // Computes the parts as one batch. Returns the outputs of each part.
  std::vector<std::vector<float>> Run(const std::vector<Part>& parts) {
    std::vector<float> x;
    std::vector<float> a;
    std::vector<float> b;
    for (const Part& part : parts) {
      Append(x_, part, kChannels, &x);
      Append(a_, part, kVHeads, &a);
      Append(b_, part, kVHeads, &b);
    }
    const auto rows = static_cast<int64_t>(a.size()) / kVHeads;
    const Spans conv_spans = SpansOf(conv_, parts);
    const MatrixView all = {x.data(), rows, kChannels};
    backend_.CausalConv({.x = all,
                         .weight = weight_,
                         .kernel = kKernel,
                         .activation = ConvActivation::kSilu,
                         .state = conv_.array(),
                         .spans = conv_spans.spans});
    const Spans delta_spans = SpansOf(delta_, parts);
    std::vector<float> out(rows * kValues, NAN);
    backend_.DeltaNet({.q = {x.data(), rows, kKeys, kChannels},
                       .k = {x.data() + kKeys, rows, kKeys, kChannels},
                       .v = {x.data() + 2 * kKeys, rows, kValues, kChannels},
                       .a = {a.data(), rows, kVHeads},
                       .b = {b.data(), rows, kVHeads},
                       .decay = decay_,
                       .dt_bias = dt_bias_,
                       .k_heads = kKHeads,
                       .v_heads = kVHeads,
                       .scale = 0.2f,
                       .state = delta_.array(),
                       .spans = delta_spans.spans,
                       .out = {out.data(), rows, kValues}});
    std::vector<std::vector<float>> results;
    auto at = out.begin();
    for (const Part& part : parts) {
      results.emplace_back(at, at + part.rows * kValues);
      at += part.rows * kValues;
      if (!part.in_place) ++steps_[part.sequence];
    }
    return results;
  }

  void Restart() { steps_[0] = steps_[1] = 0; }

  // Returns the bits of the present state of a sequence. The other overload returns those of its
  // snapshot `i`.
  std::vector<uint32_t> State(int sequence) const { return Bits(Present(sequence)); }
  std::vector<uint32_t> Snapshot(int sequence, int i) const {
    return Bits(sequence * kStates + kTurns + i);
  }

 private:
  struct Spans {
    std::vector<StateSpan> spans;
    std::vector<std::vector<StateSnapshot>> snapshots;
  };

  static void Append(const std::vector<float>& from, const Part& part, int64_t cols,
                     std::vector<float>* to) {
    const auto begin = from.begin() + (part.sequence * kRows + part.first) * cols;
    to->insert(to->end(), begin, begin + part.rows * cols);
  }

  int Present(int sequence) const { return sequence * kStates + steps_[sequence] % kTurns; }

  Spans SpansOf(const StateMemory& memory, const std::vector<Part>& parts) const {
    Spans result;
    result.snapshots.resize(parts.size());
    int64_t row = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      const int base = part.sequence * kStates;
      StateSpan span = {.first_row = row, .rows = part.rows};
      if (part.first > 0) span.in = memory.Table(Present(part.sequence));
      span.out = memory.Table(base + (steps_[part.sequence] + (part.in_place ? 0 : 1)) % kTurns);
      for (const int64_t rows : part.snapshots) {
        const auto index = static_cast<int>(result.snapshots[i].size());
        result.snapshots[i].push_back({rows, memory.Table(base + kTurns + index)});
      }
      span.snapshots = result.snapshots[i];
      result.spans.push_back(span);
      row += part.rows;
    }
    return result;
  }

  std::vector<uint32_t> Bits(int state) const {
    std::vector<uint32_t> bits = BitsOf(conv_.Read(state));
    const std::vector<uint32_t> more = BitsOf(delta_.Read(state));
    bits.insert(bits.end(), more.begin(), more.end());
    return bits;
  }

  KernelBackend& backend_;
  StateMemory conv_;
  StateMemory delta_;
  const std::vector<float> x_;
  const std::vector<float> a_;
  const std::vector<float> b_;
  const std::vector<float> weight_;
  const std::vector<float> decay_;
  const std::vector<float> dt_bias_;
  int steps_[2] = {0, 0};
};

TEST(RecurrentTest, BitsDoNotDependOnChunksOrOtherSequences) {
  for (const auto& backend : CpuBackends(2)) {
    SCOPED_TRACE(backend->Description());
    Layer layer(backend.get());
    const std::vector<float> whole = layer.Run({{0, 0, Layer::kRows}})[0];
    const std::vector<uint32_t> state = layer.State(0);
    for (const int64_t chunk : {1, 5, 31, 32, 33, 64}) {
      for (const int64_t others : {0, 1, 7}) {
        layer.Restart();
        std::vector<float> joined;
        int64_t other = 0;
        for (int64_t first = 0; first < Layer::kRows; first += chunk) {
          const Layer::Part mine = {0, first, std::min(chunk, Layer::kRows - first)};
          std::vector<Layer::Part> parts = {mine};
          if (others > 0 && other + others <= Layer::kRows) {
            parts.insert(first % 2 == 0 ? parts.begin() : parts.end(), {1, other, others});
            other += others;
          }
          const auto results = layer.Run(parts);
          const size_t me = parts[0].sequence == 0 ? 0 : 1;
          joined.insert(joined.end(), results[me].begin(), results[me].end());
        }
        EXPECT_EQ(BitsOf(joined), BitsOf(whole)) << "chunks of " << chunk << ", " << others;
        EXPECT_EQ(layer.State(0), state) << "chunks of " << chunk << ", " << others;
      }
    }
  }
}

TEST(RecurrentTest, BitsDoNotDependOnTheIsaOrThreads) {
  std::vector<float> expected;
  std::vector<uint32_t> state;
  for (const int threads : {1, 3}) {
    for (const auto& backend : CpuBackends(threads)) {
      Layer layer(backend.get());
      const std::vector<float> out = layer.Run({{0, 0, Layer::kRows}})[0];
      if (expected.empty()) {
        expected = out;
        state = layer.State(0);
      }
      EXPECT_EQ(BitsOf(out), BitsOf(expected)) << backend->Description();
      EXPECT_EQ(layer.State(0), state) << backend->Description();
    }
  }
}

TEST(RecurrentTest, SnapshotsAreTheStatesOfShorterSpans) {
  const std::vector<int64_t> rows = {1, 2, 32, 33, 64, Layer::kRows};
  for (const auto& backend : CpuBackends(2)) {
    SCOPED_TRACE(backend->Description());
    Layer layer(backend.get());
    const std::vector<float> plain = layer.Run({{0, 0, Layer::kRows}})[0];
    layer.Restart();
    const std::vector<float> out = layer.Run({{0, 0, Layer::kRows, rows}})[0];
    EXPECT_EQ(BitsOf(out), BitsOf(plain));
    for (size_t i = 0; i < rows.size(); ++i) {
      Layer shorter(backend.get());
      shorter.Run({{0, 0, rows[i]}});
      EXPECT_EQ(layer.Snapshot(0, static_cast<int>(i)), shorter.State(0)) << rows[i];
    }
    EXPECT_EQ(layer.Snapshot(0, static_cast<int>(rows.size()) - 1), layer.State(0));
  }
}

// A step reads one state and writes another one, so it can be run again. A state may also be
// replaced in place.
TEST(RecurrentTest, StepsCanBeRunAgain) {
  for (const auto& backend : CpuBackends(2)) {
    SCOPED_TRACE(backend->Description());
    Layer layer(backend.get());
    layer.Run({{0, 0, 40}});
    const std::vector<uint32_t> before = layer.State(0);
    const std::vector<float> out = layer.Run({{0, 40, 9}})[0];
    const std::vector<uint32_t> after = layer.State(0);
    Layer again(backend.get());
    again.Run({{0, 0, 40}});
    EXPECT_EQ(again.State(0), before);
    EXPECT_EQ(BitsOf(again.Run({{0, 40, 9, {}, /*in_place=*/true}})[0]), BitsOf(out));
    EXPECT_EQ(again.State(0), after);
  }
}

// NaNs of one sequence do not reach another one.
TEST(RecurrentTest, NansStayInTheirSequence) {
  for (const auto& backend : CpuBackends(2)) {
    SCOPED_TRACE(backend->Description());
    Layer layer(backend.get());
    layer.Run({{0, 0, 20}});  // sequence 1 has no state yet: its memory is NaNs
    const std::vector<float> alone = layer.Run({{0, 20, 20}})[0];
    layer.Restart();
    layer.Run({{0, 0, 20}});
    const auto both = layer.Run({{1, 50, 20}, {0, 20, 20}});
    EXPECT_TRUE(std::isnan(both[0][0]));
    EXPECT_EQ(BitsOf(both[1]), BitsOf(alone));
  }
}

std::vector<std::unique_ptr<KernelBackend>> AllBackends() {
  auto backends = CpuBackends(2);
  backends.push_back(MakeReferenceBackend(Precision::kFast));
  return backends;
}

// A head of 2 x 2 over three rows, computed by hand.
TEST(RecurrentTest, DeltaNetIsTheWorkedExample) {
  const std::vector<float> expected_out = {0.212132f,  0.424264f,  0.603810f,
                                           -1.337965f, -0.224702f, 0.721181f};
  // S after each row, as rows of k
  const std::vector<std::vector<float>> expected_states = {
      {0.3f, 0.6f, 0.4f, 0.8f},
      {0.271451f, 0.542902f, -0.863807f, 2.772387f},
      {0.574896f, 0.149792f, -0.317777f, 1.019904f}};
  for (const auto& backend : AllBackends()) {
    SCOPED_TRACE(backend->Description());
    std::vector<float> q = {1, 0, 0.6f, -0.8f, 0, 1};
    std::vector<float> k = {0.6f, 0.8f, 0, 1, 1, 0};
    const std::vector<float> v = {1, 2, -1, 3, 2, 0};
    std::vector<float> a;  // with a decay of -1: softplus(a) = -g
    for (const double g : {-0.5, -0.1, -1.0}) a.push_back(std::log(std::expm1(-g)));
    std::vector<float> b;
    for (const double beta : {0.5, 0.9, 0.25}) b.push_back(std::log(beta / (1 - beta)));
    StateMemory memory(1, DeltaUnitBytes(2, 2), 3);
    const std::vector<StateSnapshot> snapshots = {{1, memory.Table(0)}, {2, memory.Table(1)}};
    const StateSpan span = {.rows = 3, .out = memory.Table(2), .snapshots = snapshots};
    const std::vector<float> decay = {-1};
    const std::vector<float> dt_bias = {0};
    std::vector<float> out(6);
    backend->DeltaNet({.q = {q.data(), 3, 2},
                       .k = {k.data(), 3, 2},
                       .v = {v.data(), 3, 2},
                       .a = {a.data(), 3, 1},
                       .b = {b.data(), 3, 1},
                       .decay = decay,
                       .dt_bias = dt_bias,
                       .k_heads = 1,
                       .v_heads = 1,
                       .scale = 1 / std::sqrt(2.0f),
                       .state = memory.array(),
                       .spans = {&span, 1},
                       .out = {out.data(), 3, 2}});
    for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected_out[i], 5e-6) << i;
    for (int row = 0; row < 3; ++row) {
      for (int i = 0; i < 4; ++i) {
        EXPECT_NEAR(memory.Read(row)[i], expected_states[row][i], 5e-6) << row << ", " << i;
      }
    }
  }
}

// Tries both orders of V heads. With the wrong K head, the result of a V head would be very
// different.
TEST(RecurrentTest, HeadOrdersChooseTheKeyHead) {
  DeltaNetCall call = {.k_heads = 2, .v_heads = 6, .state = StateArray(), .spans = {}};
  std::vector<int> grouped;
  std::vector<int> tiled;
  for (int head = 0; head < 6; ++head) {
    call.order = HeadOrder::kGrouped;
    grouped.push_back(call.KeyHead(head));
    call.order = HeadOrder::kTiled;
    tiled.push_back(call.KeyHead(head));
  }
  EXPECT_EQ(grouped, (std::vector<int>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(tiled, (std::vector<int>{0, 1, 0, 1, 0, 1}));
}

TEST(RecurrentTest, StateIndexCoversTheUnit) {
  for (const int v_dim : {1, 15, 16, 17, 40}) {
    std::vector<int64_t> places;
    for (int row = 0; row < 5; ++row) {
      for (int col = 0; col < v_dim; ++col) places.push_back(DeltaStateIndex(5, v_dim, row, col));
    }
    std::sort(places.begin(), places.end());
    std::vector<int64_t> all(size_t{5} * v_dim);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(places, all) << v_dim;
  }
}

TEST(RecurrentDeathTest, ContradictionsAreCaught) {
  const auto backend = *MakeCpuBackend({});
  StateMemory memory(1, ConvUnitBytes(4), 2);
  std::vector<float> x(16);
  const std::vector<float> weight(32);
  const std::vector<StateSnapshot> late = {{3, memory.Table(1)}};
  const std::vector<StateSnapshot> descending = {{2, memory.Table(1)}, {1, memory.Table(1)}};
  const auto convolve = [&](int kernel, const StateSpan& span) {
    backend->CausalConv({.x = {x.data(), 2, 8},
                         .weight = {weight.data(), size_t{8} * kernel},
                         .kernel = kernel,
                         .state = memory.array(),
                         .spans = {&span, 1}});
  };
  const StateSpan good = {.rows = 2, .out = memory.Table(0)};
  convolve(4, good);
  EXPECT_DEATH(convolve(3, good), "3072 vs 2048");
  EXPECT_DEATH(convolve(4, {.rows = 3, .out = memory.Table(0)}), "in a batch of 2");
  EXPECT_DEATH(convolve(4, {.rows = 2}), "states of 0 and 0 blocks");
  EXPECT_DEATH(convolve(4, {.rows = 2, .out = memory.Table(0), .snapshots = late}),
               "snapshot after 3 of 2");
  EXPECT_DEATH(convolve(4, {.rows = 2, .out = memory.Table(0), .snapshots = descending}),
               "snapshot after 1 of 2");
}

}  // namespace
}  // namespace tidepool::kernels
