// Compares gates, gated activations, attention, soft-caps and recurrent layers with the outputs of
// torch and transformers (ops_golden.txt, written by make_ops_golden.py).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/state_memory.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

struct Golden {
  std::string name;
  std::map<std::string, std::vector<float>> fields;

  const std::vector<float>& operator[](const std::string& field) const { return fields.at(field); }
  int Int(const std::string& field) const { return static_cast<int>(fields.at(field)[0]); }
  float Float(const std::string& field) const { return fields.at(field)[0]; }
};

std::vector<Golden> Goldens(const std::string& kind) {
  std::ifstream file("tests/kernels/ops_golden.txt");
  std::vector<Golden> all;
  bool begins = true;  // the next line is the kind and the name of a case
  bool wanted = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first.empty() || begins) {
      begins = first.empty();
      wanted = first == kind;
      if (wanted) words >> all.emplace_back().name;
    } else if (wanted) {
      std::vector<float>& values = all.back().fields[first];
      for (std::string value; words >> value;) values.push_back(std::stof(value));
    }
  }
  return all;
}

// Returns every backend that this machine supports, with float32 activations.
std::vector<std::unique_ptr<KernelBackend>> Backends() {
  std::vector<std::unique_ptr<KernelBackend>> backends;
  backends.push_back(MakeReferenceBackend(Precision::kExact));
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni}) {
    auto made = MakeCpuBackend({.threads = 2, .precision = Precision::kExact, .isa = isa});
    if (made.ok()) backends.push_back(*std::move(made));
  }
  return backends;
}

// torch computes in float32, too. So the intermediate values of both results have a few roundings.
void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected, float share,
                const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], share * (0.05f + std::fabs(expected[i])))
        << what << ", element " << i;
  }
}

GateSpec SpecOf(const Golden& golden) {
  return {.experts = golden.Int("experts"),
          .top_k = golden.Int("top_k"),
          .normalize = golden.Int("normalize") != 0,
          .score = static_cast<GateScore>(golden.Int("score")),
          .selection_bias = golden["bias"],
          .groups = golden.Int("groups"),
          .groups_kept = golden.Int("groups_kept"),
          .group_score = static_cast<GroupScore>(golden.Int("group_score")),
          .scale = golden.Float("scale"),
          .normalize_epsilon = golden.Float("epsilon")};
}

TEST(GoldenTest, GatesAreThoseOfTransformers) {
  const std::vector<Golden> goldens = Goldens("gate");
  ASSERT_EQ(goldens.size(), size_t{11});
  for (const auto& backend : Backends()) {
    for (const Golden& golden : goldens) {
      const std::string what = golden.name + ", " + backend->Description();
      const GateSpec spec = SpecOf(golden);
      const auto rows = static_cast<int64_t>(golden["logits"].size()) / spec.experts;
      std::vector<int32_t> ids(rows * spec.top_k);
      std::vector<float> weights(rows * spec.top_k);
      backend->Gate({golden["logits"].data(), rows, spec.experts}, spec, ids.data(),
                    weights.data());
      // transformers does not sort some families' choices, so both are compared by id.
      std::vector<float> sorted_ids;
      std::vector<float> sorted_weights;
      for (int64_t row = 0; row < rows; ++row) {
        std::map<int32_t, float> by_id;
        for (int64_t at = row * spec.top_k; at < (row + 1) * spec.top_k; ++at) {
          by_id[ids[at]] = weights[at];
        }
        for (const auto& [id, weight] : by_id) {
          sorted_ids.push_back(static_cast<float>(id));
          sorted_weights.push_back(weight);
        }
      }
      EXPECT_EQ(sorted_ids, golden["ids"]) << what;
      ExpectNear(sorted_weights, golden["weights"], 2e-6f, what);
    }
  }
}

GluForm FormOf(const std::string& name) {
  if (name == "swiglu") return GluForm::kSwiGlu;
  if (name == "geglu") return GluForm::kGeGlu;
  return name == "geglu_tanh" ? GluForm::kGeGluTanh : GluForm::kClampedSwiGlu;
}

// The inputs are the biases of products that are zero.
TEST(GoldenTest, GluFormsAreThoseOfTransformers) {
  const std::vector<Golden> goldens = Goldens("glu");
  ASSERT_EQ(goldens.size(), size_t{5});
  for (const auto& backend : Backends()) {
    for (const Golden& golden : goldens) {
      const auto width = static_cast<int64_t>(golden["gate"].size());
      const Weight weight(DType::kF32, width, 3, 1);
      const FfnWeights ffn = {
          .gate = weight.matrix(),
          .up = weight.matrix(),
          .gate_bias = golden["gate"],
          .up_bias = golden["up"],
          .glu = {FormOf(golden.name), golden.Float("alpha"), golden.Float("limit")}};
      const std::vector<float> zeros(3, 0);
      Arena arena(1 << 16);
      const Activation out =
          backend->MatMulGlu(backend->Quantize({zeros.data(), 1, 3}, &arena), ffn, &arena);
      ExpectNear(std::vector<float>(out.values.Row(0), out.values.Row(0) + width), golden["out"],
                 2e-6f, golden.name + ", " + backend->Description());
    }
  }
}

TEST(GoldenTest, AttentionIsThatOfTransformers) {
  const std::vector<Golden> goldens = Goldens("attention");
  ASSERT_EQ(goldens.size(), size_t{5});
  for (const auto& backend : Backends()) {
    for (const Golden& golden : goldens) {
      const int dim = golden.Int("dim");
      const int64_t rows = golden.Int("rows");
      KvLayer layer = {
          .dtype = DType::kF32, .kv_heads = golden.Int("kv_heads"), .k_dim = dim, .v_dim = dim};
      layer.v_offset = layer.kv_heads * KvHeadBytes(layer.dtype, dim);
      layer.block_bytes = 2 * layer.v_offset;
      Buffer memory(layer.block_bytes);
      std::memset(memory.data(), 0xff, memory.size());
      layer.arena = memory.data();
      const std::vector<int32_t> blocks = {0};
      const KvSpan span = {.rows = rows, .blocks = blocks, .window = golden.Int("window")};
      const int64_t kv_cols = int64_t{layer.kv_heads} * dim;
      backend->StoreKv({golden["k"].data(), rows, kv_cols}, {golden["v"].data(), rows, kv_cols},
                       layer, {&span, 1});
      Arena arena(1 << 20);
      Spoil(&arena);
      const int heads = golden.Int("heads");
      const Activation out = backend->Attend({.q = {golden["q"].data(), rows, int64_t{heads} * dim},
                                              .heads = heads,
                                              .scale = golden.Float("scale"),
                                              .layer = layer,
                                              .spans = {&span, 1},
                                              .soft_cap = golden.Float("cap"),
                                              .sinks = golden["sinks"]},
                                             &arena);
      ExpectNear(std::vector<float>(out.values.Row(0), out.values.Row(rows)), golden["out"], 1e-5f,
                 golden.name + ", " + backend->Description());
    }
  }
}

TEST(GoldenTest, DeltaNetIsThatOfTransformers) {
  const std::vector<Golden> goldens = Goldens("deltanet");
  ASSERT_EQ(goldens.size(), size_t{2});
  for (const auto& backend : Backends()) {
    for (const Golden& golden : goldens) {
      const int64_t rows = golden.Int("rows");
      const int k_dim = golden.Int("k_dim");
      const int v_dim = golden.Int("v_dim");
      const int v_heads = golden.Int("v_heads");
      const int64_t keys = int64_t{golden.Int("k_heads")} * k_dim;
      const int64_t values = int64_t{v_heads} * v_dim;
      const int64_t channels = 2 * keys + values;
      std::vector<float> qkv = golden["qkv"];
      std::vector<float> a = golden["a"];
      std::vector<float> b = golden["b"];
      const StateMemory conv(ConvUnits(channels), ConvUnitBytes(4), 1);
      const StateSpan conv_span = {.rows = rows, .out = conv.Table(0)};
      backend->CausalConv({.x = {qkv.data(), rows, channels},
                           .weight = golden["conv"],
                           .kernel = 4,
                           .activation = ConvActivation::kSilu,
                           .state = conv.array(),
                           .spans = {&conv_span, 1}});
      const StateMemory state(v_heads, DeltaUnitBytes(k_dim, v_dim), 1);
      const StateSpan span = {.rows = rows, .out = state.Table(0)};
      const MatrixView v = {qkv.data() + 2 * keys, rows, values, channels};
      backend->DeltaNet({.q = {qkv.data(), rows, keys, channels},
                         .k = {qkv.data() + keys, rows, keys, channels},
                         .v = v,
                         .a = {a.data(), rows, v_heads},
                         .b = {b.data(), rows, v_heads},
                         .decay = golden["decay"],
                         .dt_bias = golden["dt_bias"],
                         .k_heads = golden.Int("k_heads"),
                         .v_heads = v_heads,
                         .scale = 1 / std::sqrt(static_cast<float>(k_dim)),
                         .state = state.array(),
                         .spans = {&span, 1},
                         .out = v});
      Arena arena(1 << 20);
      Spoil(&arena);
      const Activation out =
          backend->GatedNorm(v, {golden["z"].data(), rows, values}, golden["norm"], 1e-6f, &arena);
      ExpectNear(std::vector<float>(out.values.Row(0), out.values.Row(rows)), golden["out"], 2e-5f,
                 golden.name + ", " + backend->Description());
    }
  }
}

TEST(GoldenTest, ShortConvIsThatOfTransformers) {
  const std::vector<Golden> goldens = Goldens("shortconv");
  ASSERT_EQ(goldens.size(), size_t{2});
  for (const auto& backend : Backends()) {
    for (const Golden& golden : goldens) {
      const int64_t rows = golden.Int("rows");
      const int64_t channels = golden.Int("channels");
      const int kernel = golden.Int("kernel");
      std::vector<float> bcx = golden["bcx"];
      const StateMemory state(ConvUnits(channels), ConvUnitBytes(kernel), 1);
      const StateSpan span = {.rows = rows, .out = state.Table(0)};
      const MatrixView x = {bcx.data() + 2 * channels, rows, channels, 3 * channels};
      backend->CausalConv({.x = x,
                           .weight = golden["conv"],
                           .bias = golden["bias"],
                           .kernel = kernel,
                           .in_gate = {bcx.data(), rows, channels, 3 * channels},
                           .out_gate = {bcx.data() + channels, rows, channels, 3 * channels},
                           .state = state.array(),
                           .spans = {&span, 1}});
      std::vector<float> out;
      for (int64_t t = 0; t < rows; ++t) out.insert(out.end(), x.Row(t), x.Row(t) + channels);
      ExpectNear(out, golden["out"], 2e-6f, golden.name + ", " + backend->Description());
    }
  }
}

// The inputs are the biases of a head whose products are zero.
TEST(GoldenTest, SoftCapsAreThoseOfTorch) {
  const std::vector<Golden> goldens = Goldens("softcap");
  ASSERT_EQ(goldens.size(), size_t{3});
  for (const auto& backend : Backends()) {
    for (const Golden& golden : goldens) {
      const auto outputs = static_cast<int64_t>(golden["x"].size());
      const Weight weight(DType::kF32, outputs, 3, 1);
      const std::vector<float> zeros(6, 0);
      Arena arena(1 << 16);
      std::vector<float> out(outputs);
      ArgMax best;
      backend->MatMulHead(backend->Quantize({zeros.data(), 2, 3}, &arena),
                          {.weight = weight.matrix(),
                           .bias = golden["x"],
                           .out = {out.data(), 1, outputs},
                           .argmax = {&best, 1},
                           .argmax_vocab = outputs,
                           .soft_cap = std::stof(golden.name)},
                          &arena);
      const std::string what = golden.name + ", " + backend->Description();
      ExpectNear(out, golden["out"], 1e-6f, what);
      EXPECT_EQ(best.value, *std::max_element(out.begin(), out.end())) << what;
    }
  }
}

}  // namespace
}  // namespace tidepool::kernels
