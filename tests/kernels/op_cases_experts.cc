#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/operands.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

OpCase GateCase(int64_t rows, const GateSpec& plain, bool biased) {
  const auto run = [rows, plain, biased](KernelBackend& backend) {
    GateSpec spec = plain;
    std::vector<float> logits = Noise(spec.experts + rows).Floats(rows * spec.experts, 4);
    std::vector<float> bias = Noise(spec.experts).Floats(biased ? spec.experts : 0);
    // Makes exact ties, of which the lower id wins.
    for (int64_t t = 0; t < rows; ++t) {
      for (int e = 1; e < spec.experts; e += 3) {
        logits[t * spec.experts + e] = logits[t * spec.experts + e - 1];
      }
    }
    for (size_t e = 1; e < bias.size(); e += 3) bias[e] = bias[e - 1];
    const MatrixOperand x(backend, logits, rows, spec.experts);
    const Operand<float> selection_bias(backend, bias);
    const Operand<int32_t> ids(backend, std::vector<int32_t>(rows * spec.top_k, -1));
    const Operand<float> weights(backend, std::vector<float>(rows * spec.top_k, NAN));
    spec.selection_bias = selection_bias.span();
    backend.Gate(x.view(), spec, ids.data(), weights.data());
    const std::vector<int32_t> chosen = ids.Read();
    return OpResult{Joined(weights.Read(), {chosen.begin(), chosen.end()}), {}};
  };
  // These operations round: exp of a difference below 8 (its argument once, its result within 2
  // ulp), the sum's lanes and tree, two divisions, the sum of the chosen weights, and the scale. A
  // sigmoid has fewer roundings. Ids have no tolerance.
  const int64_t weights = rows * plain.top_k;
  const double share = (8 + 4 + plain.experts / 8.0 + 4 + 3 + plain.top_k) * 2 * kRoundoff;
  const auto tolerance = [weights, share](const std::vector<float>& reference) {
    std::vector<double> result(reference.size(), 0);
    for (int64_t i = 0; i < weights; ++i) result[i] = share * reference[i];
    return result;
  };
  return {absl::StrCat("Gate ", rows, " rows, ", plain.top_k, " of ", plain.experts, ", score ",
                       static_cast<int>(plain.score), ", ", plain.groups_kept, " of ", plain.groups,
                       " groups by ", static_cast<int>(plain.group_score),
                       plain.normalize ? ", normalised" : "", biased ? ", biased" : ""),
          run, tolerance};
}

void AddGateCases(std::vector<OpCase>* cases) {
  for (const GateScore score :
       {GateScore::kSoftmax, GateScore::kSigmoid, GateScore::kSoftmaxOfChosen}) {
    for (const bool normalize : {false, true}) {
      for (const bool biased : {false, true}) {
        const auto add = [&](int64_t rows, GateSpec spec) {
          spec.normalize = normalize;
          spec.score = score;
          cases->push_back(GateCase(rows, spec, biased));
        };
        add(1, {.experts = 8, .top_k = 2});
        add(21, {.experts = 60, .top_k = 4});
        add(5, {.experts = 128, .top_k = 8, .scale = 2.5f, .normalize_epsilon = 1e-20f});
        add(3, {.experts = 5, .top_k = 5});
        add(2, {.experts = 1, .top_k = 1});
        for (const GroupScore group_score : {GroupScore::kMax, GroupScore::kSumOfTwo}) {
          add(9, {.experts = 64,
                  .top_k = 6,
                  .groups = 8,
                  .groups_kept = 4,
                  .group_score = group_score,
                  .scale = 16});
          add(7, {.experts = 9,
                  .top_k = 3,
                  .groups = 9,
                  .groups_kept = 5,
                  .group_score = group_score});
        }
      }
    }
  }
}

struct FfnShape {
  int64_t rows, hidden, width;
};

// The form of the experts, and whether they have biases.
struct FfnKind {
  Glu glu;
  bool biased = false;
};

struct ExpertInput {
  ExpertInput(DType dtype, const FfnShape& shape, const FfnKind& kind)
      : glu(kind.glu),
        x(Noise(shape.hidden + shape.width).Floats(shape.rows * shape.hidden)),
        rows(shape.rows),
        hidden(shape.hidden),
        width(shape.width) {
    const uint64_t seed = hidden + width;
    for (uint64_t e = 0; e < 3; ++e) {
      gate.emplace_back(dtype, width, hidden, seed + 3 * e);
      up.emplace_back(dtype, width, hidden, seed + 3 * e + 1);
      down.emplace_back(dtype, hidden, width, seed + 3 * e + 2);
    }
    for (int e = 0; e < 3; ++e) {
      biases[e] = Noise(seed + e).Floats(kind.biased ? 2 * width + hidden : 0);
    }
    // Expert 0 takes every row, 1 none, 2 every other; each writes its own rows of the output.
    for (int32_t i = 0; i < rows; ++i) {
      in_rows[0].push_back(i);
      out_rows[0].push_back(2 * i + 1);
      if (i % 2 != 0) continue;
      in_rows[2].push_back(static_cast<int32_t>(rows) - 1 - i);
      out_rows[2].push_back(2 * i);
    }
  }
  Glu glu;
  std::vector<float> x;
  int64_t rows, hidden, width;
  std::vector<Weight> gate, up, down;
  std::vector<float> biases[3];
  std::vector<int32_t> in_rows[3], out_rows[3];
};

// The weights of the experts in the memory of a backend.
class ExpertOperands {
 public:
  ExpertOperands(KernelBackend& backend, const ExpertInput& input) : input_(input) {
    const auto copy = [&](const Weight& weight) {
      return matrices_.emplace_back(backend, weight).matrix();
    };
    for (int e = 0; e < 3; ++e) {
      FfnWeights& ffn = weights_[e];
      ffn = {copy(input.gate[e]), copy(input.up[e]), copy(input.down[e])};
      ffn.glu = input.glu;
      if (input.biases[e].empty()) continue;
      const absl::Span<const float> all = biases_.emplace_back(backend, input.biases[e]).span();
      ffn.gate_bias = all.subspan(0, input.width);
      ffn.up_bias = all.subspan(input.width, input.width);
      ffn.down_bias = all.subspan(2 * input.width);
    }
  }
  std::vector<ExpertGroup> Groups() const {
    std::vector<ExpertGroup> groups;
    groups.reserve(3);
    for (int e = 0; e < 3; ++e) {
      groups.push_back({&weights_[e], input_.in_rows[e], input_.out_rows[e]});
    }
    return groups;
  }

 private:
  const ExpertInput& input_;
  std::deque<WeightOperand> matrices_;
  std::deque<Operand<float>> biases_;
  FfnWeights weights_[3];
};

// The hidden values differ from the reference's by rounding. Under kFast, each may also round to
// the neighbouring int8 step, which is at most the block's largest value / 127. `down` adds up both
// errors over the magnitudes of its chain, which uses a bound of |hidden|. The gated forms are at
// most |g| (|u| + 1) (see GluCase). All biases are below 1.
std::vector<double> FfnTolerance(const ExpertInput& input, Precision precision,
                                 const std::vector<float>& reference) {
  std::vector<double> tolerance(reference.size(), 0);
  for (int e = 0; e < 3; ++e) {
    for (size_t i = 0; i < input.in_rows[e].size(); ++i) {
      const ConstMatrixView x(input.x.data() + input.in_rows[e][i] * input.hidden, 1, input.hidden);
      const std::vector<double> g = ChainMagnitudes(input.gate[e], x);
      const std::vector<double> u = ChainMagnitudes(input.up[e], x);
      double largest = 0;
      for (size_t k = 0; k < g.size(); ++k) largest = std::max(largest, (g[k] + 1) * (u[k] + 2));
      const std::vector<float> ones(input.width, 1);
      const std::vector<double> down =
          ChainMagnitudes(input.down[e], {ones.data(), 1, input.width});
      const double step = precision == Precision::kFast ? 1.0 / 127 : 0;
      const double share =
          step + 2.5 * ChainRoundoff(input.hidden) + ChainRoundoff(input.width) + 10 * kRoundoff;
      for (int64_t c = 0; c < input.hidden; ++c) {
        const int64_t at = input.out_rows[e][i] * input.hidden + c;
        tolerance[at] = share * largest * down[c] + 2 * kRoundoff * (1 + std::fabs(reference[at]));
      }
    }
  }
  return tolerance;
}

OpCase GroupedFfnCase(DType dtype, Precision precision, const FfnShape& shape,
                      const FfnKind& kind) {
  const auto input = std::make_shared<ExpertInput>(dtype, shape, kind);
  const auto run = [input](KernelBackend& backend) {
    ArenaOperand arena(backend, 1 << 20);
    const MatrixOperand values(backend, input->x, input->rows, input->hidden);
    // The rows that belong to no group do not change.
    const MatrixOperand out(backend, std::vector<float>(2 * input->rows * input->hidden, 0.5f),
                            2 * input->rows, input->hidden);
    const ExpertOperands experts(backend, *input);
    const Activation x = backend.Quantize(values.view(), &arena);
    const size_t mark = arena.used();
    backend.GroupedFfn(x, experts.Groups(), out.view(), &arena);
    OpResult result{out.Read(), {}};
    result.values.push_back(static_cast<float>(arena.used() - mark));  // scratch is freed
    return result;
  };
  const auto tolerance = [input, precision](const std::vector<float>& reference) {
    return FfnTolerance(*input, precision, reference);
  };
  return {absl::StrCat("GroupedFfn ", DTypeName(dtype), " ", shape.rows, "x", shape.hidden, "x",
                       shape.width, " form ", static_cast<int>(kind.glu.form),
                       kind.biased ? ", biased" : ""),
          run, tolerance};
}

OpCase CombineCase(int64_t rows, int slots, int64_t cols) {
  const auto run = [=](KernelBackend& backend) {
    Noise noise(rows * slots + cols);
    const int64_t sources = rows * slots + 2;
    const MatrixOperand expert_out(backend, noise.Floats(sources * cols), sources, cols);
    const std::vector<float> weights = noise.Floats(rows * slots);
    std::vector<int32_t> from(rows * slots);
    for (int32_t& row : from) row = noise.Below(static_cast<int>(sources));
    const MatrixOperand out(backend, noise.Floats(rows * cols), rows, cols);
    backend.CombineExperts(expert_out.view(), slots, from.data(), weights.data(), out.view());
    return OpResult{out.Read(), {}};
  };
  // The result is a chain of `slots` terms below 1, and one addition.
  const auto tolerance = [slots](const std::vector<float>& reference) {
    return std::vector<double>(reference.size(), (slots + 3) * (slots + 1) * kRoundoff);
  };
  return {absl::StrCat("CombineExperts ", rows, "x", slots, "x", cols), run, tolerance};
}

OpCase AccumulateCase(int64_t tokens, int64_t cols) {
  const auto run = [=](KernelBackend& backend) {
    Noise noise(tokens + cols);
    const MatrixOperand expert_out(backend, noise.Floats(2 * tokens * cols), 2 * tokens, cols);
    const MatrixOperand sum(backend, noise.Floats(tokens * cols), tokens, cols);
    // There are two experts: one for every token, and one for every third token.
    for (const int32_t step : {1, 3}) {
      std::vector<int32_t> rows;
      std::vector<int32_t> to;
      for (int32_t t = 0; t < tokens; t += step) {
        rows.push_back(noise.Below(static_cast<int>(2 * tokens)));
        to.push_back(static_cast<int32_t>(tokens) - 1 - t);
      }
      const std::vector<float> weights = noise.Floats(static_cast<int64_t>(rows.size()));
      backend.AccumulateExpert(expert_out.view(), {rows, to, weights}, sum.view());
    }
    const MatrixOperand out(backend, noise.Floats(tokens * cols), tokens, cols);
    backend.Add(sum.view(), out.view());
    return OpResult{out.Read(), {}};
  };
  // The result is two accumulation steps and an addition of values below 1.
  const auto tolerance = [](const std::vector<float>& reference) {
    return std::vector<double>(reference.size(), 5 * 4 * kRoundoff);
  };
  return {absl::StrCat("AccumulateExpert ", tokens, "x", cols), run, tolerance};
}

OpCase AddGatedCase(int64_t rows, int64_t cols) {
  const auto run = [=](KernelBackend& backend) {
    Noise noise(rows + cols);
    const MatrixOperand x(backend, noise.Floats(rows * cols), rows, cols);
    const Operand<float> gate(backend, noise.Floats(rows, 6));
    const MatrixOperand out(backend, noise.Floats(rows * cols), rows, cols);
    backend.AddGated(x.view(), gate.span(), out.view());
    return OpResult{out.Read(), {}};
  };
  // sigmoid has 8 roundings; the product and the sum are of values below 1.
  const auto tolerance = [](const std::vector<float>& reference) {
    return std::vector<double>(reference.size(), 12 * kRoundoff);
  };
  return {absl::StrCat("AddGated ", rows, "x", cols), run, tolerance};
}

}  // namespace

void AddExpertCases(Precision precision, std::vector<OpCase>* cases) {
  AddGateCases(cases);
  for (const DType dtype : kAllDTypes) {
    const int64_t one = WholeBlocks(dtype, 64);
    const int64_t two = WholeBlocks(dtype, 96);
    cases->push_back(GroupedFfnCase(dtype, precision, {1, one, two}, {}));
    cases->push_back(GroupedFfnCase(dtype, precision, {11, two, WholeBlocks(dtype, 160)}, {}));
  }
  for (int form = 0; form < 4; ++form) {
    const Glu glu = {.form = static_cast<GluForm>(form), .limit = 1.5f};
    for (const bool biased : {false, true}) {
      cases->push_back(GroupedFfnCase(DType::kF32, precision, {5, 20, 13}, {glu, biased}));
      cases->push_back(GroupedFfnCase(DType::kMXFP4, precision, {11, 96, 160}, {glu, biased}));
      cases->push_back(GroupedFfnCase(DType::kQ8_0, precision, {30, 64, 96}, {glu, biased}));
    }
  }
  for (const int64_t cols : {1, 37, 64}) {
    cases->push_back(CombineCase(1, 8, cols));
    cases->push_back(CombineCase(13, 2, cols));
    cases->push_back(AccumulateCase(1, cols));
    cases->push_back(AccumulateCase(13, cols));
    cases->push_back(AddGatedCase(1, cols));
    cases->push_back(AddGatedCase(13, cols));
  }
}

}  // namespace tidepool::kernels
