// A dry run with the counting backend counts exactly as much memory as the CPU's ops use.
#include "kernels/counting_backend.h"

#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

using Op = std::function<void(KernelBackend&, Arena*)>;

class CountingBackendTest : public testing::TestWithParam<std::tuple<Precision, int>> {
 protected:
  CountingBackendTest()
      : real_(*MakeCpuBackend({.threads = threads(), .precision = precision()})),
        counting_(MakeCountingBackend(precision(), threads())) {}

  static Precision precision() { return std::get<0>(GetParam()); }
  static int threads() { return std::get<1>(GetParam()); }

  // Compares the memory that remains allocated after `op`, and the peak.
  void ExpectSameMemory(const Op& op) {
    Arena real(4 << 20);
    op(*real_, &real);
    Arena counted = Arena::Counting();
    op(*counting_, &counted);
    EXPECT_EQ(counted.used(), real.used());
    EXPECT_EQ(counted.high_water(), real.high_water());
  }

  const std::unique_ptr<KernelBackend> real_;
  const std::unique_ptr<KernelBackend> counting_;
};

TEST_P(CountingBackendTest, IsLikeTheRealOne) {
  EXPECT_EQ(counting_->precision(), real_->precision());
  EXPECT_EQ(counting_->threads(), real_->threads());
}

TEST_P(CountingBackendTest, RowsNeedTheSame) {
  for (const int64_t cols : {64, 33}) {
    const std::vector<float> x = Noise(1).Floats(7 * cols);
    const std::vector<float> weight = Noise(2).Floats(cols);
    ExpectSameMemory([&](KernelBackend& backend, Arena* arena) {
      backend.Quantize({x.data(), 7, cols}, arena);
    });
    Arena inputs(1 << 16);
    const Activation row = real_->Quantize({x.data(), 7, cols}, &inputs);
    if (row.quants != nullptr) {
      ExpectSameMemory(
          [&](KernelBackend& backend, Arena* arena) { backend.QuantizeInTwo(row, arena); });
    }
    ExpectSameMemory([&](KernelBackend& backend, Arena* arena) {
      backend.Norm({x.data(), 7, cols}, weight, 1e-5f, arena);
    });
    ExpectSameMemory([&](KernelBackend& backend, Arena* arena) {
      backend.GatedNorm({x.data(), 7, cols}, {x.data(), 7, cols}, weight, 1e-5f, arena);
    });
  }
}

TEST_P(CountingBackendTest, ProductsNeedTheSame) {
  const std::vector<float> rows = Noise(1).Floats(384);
  Arena inputs(1 << 16);
  const Activation x = real_->Quantize({rows.data(), 6, 64}, &inputs);
  const Weight gate(DType::kQ8_0, 96, 64, 1);
  const Weight down(DType::kQ8_0, 64, 96, 2);
  const FfnWeights ffn = {gate.matrix(), gate.matrix(), down.matrix()};
  ExpectSameMemory([&](KernelBackend& backend, Arena* arena) { backend.MatMulGlu(x, ffn, arena); });
  std::vector<float> out(576);
  std::vector<ArgMax> best(4);
  for (const size_t argmax_rows : {0, 1, 4}) {
    HeadTarget target = {.weight = gate.matrix()};
    target.out = {out.data(), 6 - static_cast<int64_t>(argmax_rows), 96};
    target.argmax = absl::MakeSpan(best.data(), argmax_rows);
    target.argmax_vocab = argmax_rows == 0 ? 0 : 96;
    ExpectSameMemory(
        [&](KernelBackend& backend, Arena* arena) { backend.MatMulHead(x, target, arena); });
  }
  const std::vector<int32_t> chosen = {0, 2, 5};
  const ExpertGroup groups[] = {{&ffn, chosen, chosen}, {&ffn, {}, {}}, {&ffn, chosen, chosen}};
  ExpectSameMemory([&](KernelBackend& backend, Arena* arena) {
    backend.GroupedFfn(x, groups, {out.data(), 6, 64}, arena);
  });
}

// Tries several lengths of the context, and several divisions of the rows into spans.
TEST_P(CountingBackendTest, AttentionNeedsTheSame) {
  constexpr int64_t kRows = 40;
  KvLayer layer = {.kv_heads = 2, .k_dim = 24, .v_dim = 20};
  layer.v_offset = size_t{2} * 2 * 24 * kKvBlockTokens;
  layer.block_bytes = 2 * layer.v_offset;
  Buffer kv(layer.block_bytes);
  std::memset(kv.data(), 0, kv.size());
  layer.arena = kv.data();
  const std::vector<int32_t> blocks(64, 0);
  const std::vector<float> q = Noise(3).Floats(kRows * 8 * 24);
  std::vector<KvSpan> single;
  for (int64_t row = 0; row < kRows; ++row) single.push_back({row, 1, row * 50, blocks});
  const KvSpan whole = {0, kRows, 2000, blocks};
  for (const absl::Span<const KvSpan> spans : {absl::MakeConstSpan(single), {&whole, 1}}) {
    const AttendCall call = {{q.data(), kRows, 192}, 8, 0.1f, layer, spans};
    ExpectSameMemory([&](KernelBackend& backend, Arena* arena) { backend.Attend(call, arena); });
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, CountingBackendTest,
                         testing::Combine(testing::Values(Precision::kFast, Precision::kExact),
                                          testing::Values(1, 3)));

}  // namespace
}  // namespace tidepool::kernels
