#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/ops.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/operands.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

struct SpanShape {
  int64_t first_slot;
  int64_t rows;
  Mask mask = Mask::kCausal;
  int64_t window = 0;
};

// Features that most models do not have.
struct Extras {
  float soft_cap = 0;
  bool sinks = false;
  bool values_in_keys = false;
  bool gate = false;
};

struct Heads {
  int heads, kv_heads, k_dim, v_dim;
  Extras extras = {};
};

// Inputs of attention. A backend stores each span's history and rows before it attends.
class AttentionFixture {
 public:
  AttentionFixture(DType dtype, const Heads& heads, std::vector<SpanShape> shapes)
      : dtype_(dtype), heads_(heads), shapes_(std::move(shapes)) {
    Noise noise(heads.k_dim * 31 + heads.heads + static_cast<int>(dtype));
    for (const SpanShape& shape : shapes_) {
      const int64_t slots = shape.first_slot + shape.rows;
      keys_.push_back(noise.Floats(slots * heads.kv_heads * heads.k_dim));
      values_.push_back(noise.Floats(slots * heads.kv_heads * heads.v_dim));
      rows_ += shape.rows;
    }
    queries_ = noise.Floats(rows_ * heads.heads * heads.k_dim);
    sinks_ = noise.Floats(heads.extras.sinks ? heads.heads : 0, 3);
    gate_ = noise.Floats(heads.extras.gate ? rows_ * GateStride() : 0, 4);
  }

  // Stores everything, then runs attention. Returns the results of the spans' rows, or the bytes of
  // the KV.
  OpResult Attend(KernelBackend& backend) const {
    Kv kv(backend, *this);
    kv.Store();
    const MatrixOperand q(backend, queries_, rows_, int64_t{heads_.heads} * heads_.k_dim);
    const Operand<float> sinks(backend, sinks_);
    const MatrixOperand gate(backend, gate_, rows_, GateStride() - 1, GateStride());
    const AttendCall call = {.q = q.view(),
                             .heads = heads_.heads,
                             .scale = Scale(),
                             .layer = kv.layer,
                             .spans = kv.spans,
                             .soft_cap = heads_.extras.soft_cap,
                             .sinks = sinks.span(),
                             .gate = gate_.empty() ? ConstMatrixView() : gate.view()};
    ArenaOperand arena(backend, ActivationBytes(rows_, int64_t{heads_.heads} * heads_.v_dim) +
                                    AttendScratchBytes(call, backend.threads()));
    return ResultOf(backend, backend.Attend(call, &arena));
  }
  OpResult StoredBytes(KernelBackend& backend) const {
    Kv kv(backend, *this);
    kv.Store();
    OpResult result;
    for (const std::byte byte : kv.memory->Read()) {
      result.values.push_back(static_cast<float>(byte));
    }
    return result;
  }

  // A score is a chain of k_dim terms and a scaling. Its magnitude is at most k_dim * scale,
  // because all inputs are below 1. Its absolute error e is at most (k_dim + 2) roundings of this
  // magnitude. The maximum has the same error, so exp gives a softmax weight a relative error of 2
  // e. exp itself adds 2 ulp, and the merges add 4 roundings per segment. If the weights have a
  // relative error d, the normalised mean of values below 1 changes by at most 2 d. The chain over
  // the tokens of a segment adds kKvSegmentTokens roundings. A soft-cap has a slope of at most 1,
  // and adds about 8 roundings of the score. A sink is one more merge. A gate is below 1, and has 4
  // roundings.
  double Tolerance() const {
    int64_t segments = 1;
    for (const SpanShape& shape : shapes_) {
      segments = std::max(segments, (shape.first_slot + shape.rows) / kKvSegmentTokens + 1);
    }
    const double score = (heads_.k_dim + 2 + 8) * kRoundoff * heads_.k_dim * Scale();
    const double share = 2 * score + (8 + 4.0 * segments + 2 * heads_.k_dim * Scale()) * kRoundoff;
    return 2 * share + (kKvSegmentTokens + 8) * kRoundoff;
  }

 private:
  int64_t GateStride() const { return int64_t{heads_.heads} * heads_.v_dim + 1; }
  float Scale() const { return 1 / std::sqrt(static_cast<float>(heads_.k_dim)); }

  // The layer's KV in the memory of a backend, filled with NaNs.
  struct Kv {
    Kv(KernelBackend& b, const AttentionFixture& f) : backend(b), fixture(f) {
      layer.dtype = f.dtype_;
      layer.kv_heads = f.heads_.kv_heads;
      layer.k_dim = f.heads_.k_dim;
      layer.v_dim = f.heads_.v_dim;
      layer.k_offset = 64;
      layer.v_offset = 64 + layer.kv_heads * KvHeadBytes(f.dtype_, layer.k_dim);
      layer.block_bytes = layer.v_offset + layer.kv_heads * KvHeadBytes(f.dtype_, layer.v_dim) + 64;
      layer.values_in_keys = f.heads_.extras.values_in_keys;
      if (layer.values_in_keys) layer.block_bytes = layer.v_offset;
      int32_t total = 0;
      for (const SpanShape& shape : f.shapes_) {
        tables.emplace_back((shape.first_slot + shape.rows) / kKvBlockTokens + 2);
        total += static_cast<int32_t>(tables.back().size());
      }
      // Tables have blocks in descending order, so that neighbours in a sequence are not neighbours
      // in memory.
      for (auto& table : tables) {
        for (int32_t& block : table) block = --total;
      }
      memory.emplace(backend,
                     std::vector<std::byte>(layer.block_bytes * tables_size(), std::byte{0xff}));
      layer.arena = memory->data();
      int64_t row = 0;
      for (size_t s = 0; s < tables.size(); ++s) {
        const SpanShape& shape = f.shapes_[s];
        spans.push_back({row, shape.rows, shape.first_slot, tables[s], shape.mask, shape.window});
        row += shape.rows;
      }
    }
    size_t tables_size() const {
      size_t blocks = 0;
      for (const auto& table : tables) blocks += table.size();
      return blocks;
    }
    // Stores the slots of each span from 0 on, in two pieces: first the history, then the span's
    // own rows.
    void Store() {
      const Heads& h = fixture.heads_;
      for (size_t s = 0; s < spans.size(); ++s) {
        const int64_t first = spans[s].first_slot;
        const Operand<float> keys(backend, fixture.keys_[s]);
        const Operand<float> values(backend, fixture.values_[s]);
        for (const auto& [begin, count] : {std::pair(int64_t{0}, first), {first, spans[s].rows}}) {
          const KvSpan piece = {0, count, begin, tables[s]};
          const int64_t k_cols = int64_t{h.kv_heads} * h.k_dim;
          const int64_t v_cols = layer.values_in_keys ? 0 : int64_t{h.kv_heads} * h.v_dim;
          backend.StoreKv({keys.data() + begin * k_cols, count, k_cols},
                          {values.data() + begin * v_cols, count, v_cols}, layer, {&piece, 1});
        }
      }
    }
    KernelBackend& backend;
    const AttentionFixture& fixture;
    KvLayer layer;
    std::optional<Operand<std::byte>> memory;
    std::vector<std::vector<int32_t>> tables;
    std::vector<KvSpan> spans;
  };

  DType dtype_;
  Heads heads_;
  std::vector<SpanShape> shapes_;
  int64_t rows_ = 0;
  std::vector<std::vector<float>> keys_;
  std::vector<std::vector<float>> values_;
  std::vector<float> queries_;
  std::vector<float> sinks_;
  std::vector<float> gate_;
};

void AddCase(DType dtype, const Heads& heads, const std::vector<SpanShape>& shapes,
             const std::string& what, std::vector<OpCase>* cases) {
  const auto fixture = std::make_shared<AttentionFixture>(dtype, heads, shapes);
  const std::string name = absl::StrCat(DTypeName(dtype), " ", heads.heads, "/", heads.kv_heads,
                                        " heads of ", heads.k_dim, ", ", heads.v_dim, ": ", what);
  const auto tolerance = [fixture](const std::vector<float>& reference) {
    return std::vector<double>(reference.size(), fixture->Tolerance());
  };
  cases->push_back({"Attend " + name,
                    [fixture](KernelBackend& backend) { return fixture->Attend(backend); },
                    tolerance});
  cases->push_back({"StoreKv " + name,
                    [fixture](KernelBackend& backend) { return fixture->StoredBytes(backend); },
                    Relative(0)});
}

void AddExtraCases(std::vector<OpCase>* cases) {
  const std::vector<SpanShape> spans = {
      {300, 9}, {0, 1}, {70, 3, Mask::kCausal, 33}, {700, 1}, {20, 60, Mask::kCausal, 40}};
  const auto add = [&](DType dtype, const Heads& heads, const std::string& what) {
    AddCase(dtype, heads, spans, what, cases);
  };
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    add(dtype, {9, 3, 64, 64, {.soft_cap = 1.5f}}, "soft-cap");
    add(dtype, {9, 3, 64, 64, {.sinks = true}}, "sinks");
    add(dtype, {8, 2, 64, 64, {.soft_cap = 50, .sinks = true}}, "soft-cap and sinks");
    add(dtype, {16, 1, 96, 64, {.values_in_keys = true}}, "values in keys");
    add(dtype, {8, 2, 64, 32, {.sinks = true, .gate = true}}, "gate and sinks");
    add(dtype, {30, 1, 64, 32, {.sinks = true, .values_in_keys = true}},
        "many heads, values in keys");
  }
  add(DType::kBF16, {3, 1, 23, 14, {.values_in_keys = true}}, "odd dims, values in keys");
  add(DType::kF16, {5, 1, 7, 5, {.soft_cap = 2, .sinks = true}}, "odder dims");
  add(DType::kF16, {4, 2, 12, 20, {.gate = true}}, "odd dims, gate");
  add(DType::kF16, {4, 2, 12, 12, {.values_in_keys = true}}, "keys are values");
}

}  // namespace

void AddAttentionCases(Precision, std::vector<OpCase>* cases) {
  const Heads kSmol = {9, 3, 64, 64};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    AddCase(dtype, kSmol, {{0, 1}}, "first token", cases);
    AddCase(dtype, kSmol, {{77, 1}, {31, 1}, {32, 1}, {0, 0}, {127, 1}, {128, 1}, {95, 1}},
            "decode", cases);
    AddCase(dtype, kSmol, {{700, 1}, {3, 1}}, "long and short", cases);
    AddCase(dtype, kSmol, {{45, 40}, {5, 3}, {250, 20}}, "chunks", cases);
    AddCase(dtype, kSmol, {{300, 9, Mask::kCausal, 33}, {400, 1, Mask::kCausal, 200}}, "window",
            cases);
  }
  for (const DType dtype : {DType::kF16, DType::kQ8_0}) {
    AddCase(dtype, kSmol, {{0, 150}}, "prefill", cases);
    AddCase(dtype, {4, 4, 32, 32}, {{0, 40}, {70, 2}, {300, 1}}, "no groups", cases);
    AddCase(dtype, {8, 2, 128, 128}, {{0, 20}, {130, 2}, {260, 1}}, "groups of four", cases);
    AddCase(dtype, {16, 2, 96, 64}, {{0, 10}, {128, 1}, {190, 3}}, "groups of eight", cases);
    AddCase(dtype, {2, 1, 256, 256}, {{120, 20}, {300, 1}}, "large heads", cases);
  }
  AddExtraCases(cases);
  const DType f16 = DType::kF16;
  AddCase(f16, {5, 1, 16, 24}, {{3, 40}}, "one KV head", cases);
  AddCase(f16, {26, 1, 8, 8}, {{40, 3}}, "a group larger than a task", cases);
  AddCase(f16, {24, 1, 8, 8}, {{14000, 1}}, "more segments than wait at once", cases);
  AddCase(f16, {4, 2, 20, 12}, {{33, 5}, {256, 1}}, "odd dims", cases);
  AddCase(f16, {2, 2, 7, 5}, {{0, 35}, {140, 1}}, "odder dims", cases);
  AddCase(f16, kSmol, {{90, 9, Mask::kCausal, 33}, {10, 5, Mask::kCausal, 1}}, "windows", cases);
  AddCase(f16, kSmol, {{20, 200, Mask::kCausal, 140}}, "window in prefill", cases);
  AddCase(f16, kSmol, {{37, 150, Mask::kBidirectional}}, "bidirectional", cases);
  AddCase(f16, kSmol, {{37, 50, Mask::kBidirectional, 30}}, "bidirectional window", cases);
}

}  // namespace tidepool::kernels
