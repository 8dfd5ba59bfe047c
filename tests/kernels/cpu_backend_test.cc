// A CPU backend's description and errors, and ops with inputs that no valid model causes.
#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/panel.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

TEST(CpuBackendTest, RefusesImpossibleThreads) {
  for (const int threads : {0, -3, 100000}) {
    const auto backend = MakeCpuBackend({.threads = threads});
    EXPECT_EQ(backend.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(backend.status().message().find(std::to_string(threads)), absl::string_view::npos);
  }
}

TEST(CpuBackendTest, DescribesItsInstructionSetAndThreads) {
  const auto backend = MakeCpuBackend({.threads = 1, .isa = Isa::kPortable});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->Description(), "cpu portable, 1 thread");
  EXPECT_EQ((*backend)->precision(), Precision::kFast);
  if (!DetectCpu().avx2) GTEST_SKIP() << "no AVX2 here";
  const auto fast =
      MakeCpuBackend({.threads = 2, .precision = Precision::kExact, .isa = Isa::kAvx2});
  ASSERT_TRUE(fast.ok());
  EXPECT_EQ((*fast)->Description(), "cpu avx2, 2 threads");
  EXPECT_EQ((*fast)->precision(), Precision::kExact);
}

// By default, the best kernels that the machine supports are used. Kernels that it does not support
// are an error.
TEST(CpuBackendTest, TheIsaIsThatOfTheMachine) {
  const CpuFeatures none;
  const CpuFeatures avx2 = {.avx2 = true};
  const CpuFeatures avx512 = {.avx2 = true, .avx512 = true};
  const CpuFeatures all = {.avx2 = true, .avx512 = true, .avx512_vnni = true};
  // AVX-512 without AVX2, or VNNI without AVX-512, means that the CPU's features are masked. Only
  // complete sets are used.
  const CpuFeatures odd = {.avx512 = true, .avx512_vnni = true};
  const auto refusal = [](Isa isa, const CpuFeatures& features) {
    const auto kernels = ChooseKernels(isa, features);
    EXPECT_EQ(kernels.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(kernels.status().message());
  };
  for (const CpuFeatures& features : {none, avx2, avx512, all, odd}) {
    EXPECT_EQ(*ChooseKernels(Isa::kPortable, features), &PortableKernels());
  }
  EXPECT_EQ(*ChooseKernels(Isa::kBest, none), &PortableKernels());
  EXPECT_EQ(*ChooseKernels(Isa::kBest, odd), &PortableKernels());
  EXPECT_THAT(refusal(Isa::kAvx2, none), testing::HasSubstr("AVX2, FMA and F16C"));
  EXPECT_THAT(refusal(Isa::kAvx512, avx2), testing::HasSubstr("AVX-512 F, BW, VL and DQ"));
  EXPECT_THAT(refusal(Isa::kAvx512, odd),
              testing::HasSubstr("choose the portable or the best kernels"));
  EXPECT_THAT(refusal(Isa::kAvx512Vnni, avx512), testing::HasSubstr("VNNI"));
  EXPECT_THAT(refusal(Isa::kAvx512Vnni, odd), testing::HasSubstr("VNNI"));
  if (Avx2Kernels() == nullptr) return;  // another architecture
  EXPECT_EQ(*ChooseKernels(Isa::kBest, avx2), Avx2Kernels());
  EXPECT_EQ(*ChooseKernels(Isa::kBest, avx512), Avx512Kernels());
  EXPECT_EQ(*ChooseKernels(Isa::kBest, all), Avx512VnniKernels());
  EXPECT_EQ(*ChooseKernels(Isa::kAvx2, all), Avx2Kernels());
  EXPECT_EQ(*ChooseKernels(Isa::kAvx512, all), Avx512Kernels());
}

// Returns the kernels that this machine supports.
std::vector<const KernelTable*> AllKernels() {
  std::vector<const KernelTable*> result;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni}) {
    const auto kernels = ChooseKernels(isa, DetectCpu());
    if (kernels.ok()) result.push_back(*kernels);
  }
  return result;
}

// Returns floats from the whole range, limits of the kernels, infinities and a NaN.
std::vector<float> ManyFloats() {
  std::vector<float> x;
  for (uint32_t bits = 0; bits <= 0x7f800000; bits += 40009) {
    x.push_back(FloatFromBits(bits));
    x.push_back(FloatFromBits(bits | 0x80000000));
  }
  for (const float more : {-87.0f, 87.0f, 88.72283f, -88.72284f, 0.0f, -0.0f, 0.625f, -0.625f, 7.0f,
                           7.0710678f, -7.0710678f, INFINITY, -INFINITY, NAN}) {
    x.push_back(more);
  }
  return x;
}

void ExpectBits(const std::vector<float>& actual, const std::vector<float>& expected,
                const std::vector<float>& x, const std::string& what) {
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(actual[i])) << what << " at " << x[i];
    } else {
      ASSERT_EQ(FloatBits(actual[i]), FloatBits(expected[i])) << what << " at " << x[i];
    }
  }
}

// Every vector form equals math.h's scalar function, bit for bit.
TEST(CpuBackendTest, ElementwiseKernelsAreTheScalarFormulas) {
  const std::vector<float> x = ManyFloats();
  const auto n = static_cast<int64_t>(x.size());
  std::vector<float> up = Noise(3).Floats(n, 9);
  up[5] = NAN;
  const Glu glu = {.alpha = 1.702f, .limit = 7};
  const auto map = [&](auto function) {
    std::vector<float> expected(n);
    for (int64_t i = 0; i < n; ++i) expected[i] = function(x[i], up[i]);
    return expected;
  };
  const std::vector<float> gated[kGluForms] = {
      map([](float g, float u) { return Silu(g) * u; }),
      map([](float g, float u) { return Gelu(g) * u; }),
      map([](float g, float u) { return GeluTanh(g) * u; }),
      map([&](float g, float u) { return ClampedSwiGlu(g, u, glu.alpha, glu.limit); })};
  const std::vector<float> capped = map([](float v, float) { return SoftCap(v, 0.5f / 30, 30); });
  const std::vector<float> sigmoids = map([](float v, float) { return Sigmoid(v); });
  const std::vector<float> scaled = map([](float v, float) { return v * 0.3f; });
  for (const KernelTable* table : AllKernels()) {
    std::vector<float> out(n);
    for (int form = 0; form < kGluForms; ++form) {
      table->glu[form](x.data(), up.data(), n, glu, out.data());
      ExpectBits(out, gated[form], x, std::string(table->name) + " form " + std::to_string(form));
    }
    out = x;
    table->soft_cap(out.data(), n, 0.5f / 30, 30);
    ExpectBits(out, capped, x, std::string(table->name) + " soft-cap");
    table->sigmoid(x.data(), n, out.data());
    ExpectBits(out, sigmoids, x, std::string(table->name) + " sigmoid");
    out = x;
    table->scale(out.data(), 0.3f, n);
    ExpectBits(out, scaled, x, std::string(table->name) + " scale");
  }
}

// Conversions of float16 in both directions equal math.h's, bit for bit, except for NaNs.
TEST(CpuBackendTest, KvConversionIsTheScalarOne) {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 60013) {
    x.push_back(FloatFromBits(static_cast<uint32_t>(bits)));
  }
  const int64_t n = static_cast<int64_t>(x.size());
  for (const KernelTable* table : AllKernels()) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      std::vector<uint16_t> halves(n);
      std::vector<float> back(n);
      std::byte* bytes = reinterpret_cast<std::byte*>(halves.data());
      table->attention.store(dtype, x.data(), n, bytes);
      table->attention.load(dtype, bytes, n, back.data());
      for (int64_t i = 0; i < n; ++i) {
        const bool f16 = dtype == DType::kF16;
        if (std::isnan(x[i])) {
          ASSERT_TRUE(std::isnan(back[i]));
          continue;
        }
        ASSERT_EQ(halves[i], f16 ? F32ToF16(x[i]) : F32ToBF16(x[i])) << x[i];
        ASSERT_EQ(FloatBits(back[i]), FloatBits(f16 ? F16ToF32(halves[i]) : BF16ToF32(halves[i])));
      }
    }
  }
}

std::vector<std::unique_ptr<KernelBackend>> AllBackends() {
  std::vector<std::unique_ptr<KernelBackend>> backends;
  backends.push_back(MakeReferenceBackend(Precision::kFast));
  backends.push_back(*MakeCpuBackend({.isa = Isa::kPortable}));
  backends.push_back(*MakeCpuBackend({.threads = 2}));
  return backends;
}

TEST(CpuBackendTest, EmptyBatchesAreFine) {
  for (const auto& backend : AllBackends()) {
    Arena arena(1 << 16);
    const Weight weight(DType::kQ8_0, 16, 32, 1);
    const std::vector<float> norm(32, 1);
    const Activation x = backend->Norm({nullptr, 0, 32}, norm, 1e-5f, &arena);
    EXPECT_EQ(x.values.rows, 0);
    const MatMulTarget target = {.weight = weight.matrix(), .out = MatrixView(nullptr, 0, 16)};
    backend->MatMul(x, {&target, 1});
    backend->MatMul(x, {});
    backend->GroupedFfn(x, {}, MatrixView(nullptr, 0, 32), &arena);
  }
}

// All host backends share these functions, so the reference cannot find faults in them. The results
// are compared with literal values.
TEST(CpuBackendTest, CopiesAreLiteral) {
  const auto backend = *MakeCpuBackend({});
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::vector<float> out(12, 0);
  backend->CopyHeads({.heads = 2, .cols = 1, .from_dim = 3, .from_first = 1, .to_dim = 2},
                     {values.data(), 2, 6}, {out.data(), 2, 4, 5});
  EXPECT_EQ(out, (std::vector<float>{2, 0, 5, 0, 0, 8, 0, 11, 0, 0, 0, 0}));
  out = values;
  backend->Zero({out.data() + 1, 3, 2, 4});
  EXPECT_EQ(out, (std::vector<float>{1, 0, 0, 4, 5, 0, 0, 8, 9, 0, 0, 12}));
  const std::vector<int64_t> rows = {2, 0, 2};
  backend->GatherRows({values.data(), 3, 2, 4}, rows, {out.data(), 3, 2, 4});
  EXPECT_EQ(out, (std::vector<float>{9, 10, 0, 4, 1, 2, 0, 8, 9, 10, 0, 12}));
}

TEST(CpuBackendTest, ScanFindsTheFirstLargeElement) {
  const std::vector<float> values = {0, -0.0f, 0, 1, -3, 3, NAN, 0, INFINITY, 1, 2, -NAN};
  for (const auto& backend : AllBackends()) {
    std::vector<RowScan> scans(4);
    backend->ScanRows({values.data(), 4, 3}, 3, scans.data());
    EXPECT_EQ(scans[0].first_large, -1);
    EXPECT_TRUE(scans[0].all_zero);
    EXPECT_EQ(scans[1].first_large, 1);
    EXPECT_EQ(scans[1].large, -3);
    EXPECT_FALSE(scans[1].all_zero);
    EXPECT_EQ(scans[2].first_large, 0);
    EXPECT_TRUE(std::isnan(scans[2].large));
    EXPECT_EQ(scans[3].first_large, 2);
    backend->ScanRows({values.data(), 4, 3}, INFINITY, scans.data());
    EXPECT_EQ(scans[1].first_large, -1);
    EXPECT_FALSE(scans[1].all_zero);
    backend->ScanRows({values.data() + 7, 1, 3}, INFINITY, scans.data());
    EXPECT_EQ(scans[0].first_large, 1);
    EXPECT_EQ(scans[0].large, INFINITY);
  }
}

// QuantizeInTwo is Quantize of the rows, and Quantize of their rounding errors.
TEST(CpuBackendTest, QuantizeInTwoIsQuantizeOfRowsAndRests) {
  constexpr int64_t kRows = 11;
  constexpr int64_t kCols = 96;
  std::vector<float> values = Noise(5).Floats(kRows * kCols, 3);
  values[kCols + 40] = NAN;
  values[2 * kCols + 70] = INFINITY;
  const auto same = [](float a, float b) {
    return FloatBits(a) == FloatBits(b) || (std::isnan(a) && std::isnan(b));
  };
  for (const auto& backend : AllBackends()) {
    Arena arena(1 << 20);
    const Activation x = backend->Quantize({values.data(), kRows, kCols}, &arena);
    std::vector<float> terms = values;
    for (int64_t i = 0; i < kRows * kCols; ++i) {
      terms.push_back(values[i] - x.scales[i / kQuantBlock] * static_cast<float>(x.quants[i]));
    }
    const Activation expected = backend->Quantize({terms.data(), 2 * kRows, kCols}, &arena);
    const Activation actual = backend->QuantizeInTwo(x, &arena);
    ASSERT_EQ(actual.values.rows, 2 * kRows);
    for (int64_t i = 0; i < 2 * kRows * kCols; ++i) {
      const int64_t block = i / kQuantBlock;
      EXPECT_TRUE(same(actual.values.data[i], terms[i])) << i;
      EXPECT_EQ(actual.quants[i], expected.quants[i]) << i;
      EXPECT_TRUE(same(actual.scales[block], expected.scales[block])) << i;
      EXPECT_TRUE(same(actual.sums[block], expected.sums[block])) << i;
      EXPECT_EQ(actual.half_sums[i / kHalfBlock], expected.half_sums[i / kHalfBlock]) << i;
    }
  }
}

// All backends share this function, so its results are compared with literal ranges.
TEST(CpuBackendTest, VisibleSlotsAreTheMasks) {
  const auto visible = [](Mask mask, int64_t window, int64_t row) {
    const SlotRange range = VisibleSlots({0, 4, 10, {}, mask, window}, row);
    return std::pair(range.begin, range.end);
  };
  using Range = std::pair<int64_t, int64_t>;
  EXPECT_EQ(visible(Mask::kCausal, 0, 0), Range(0, 11));
  EXPECT_EQ(visible(Mask::kCausal, 0, 3), Range(0, 14));
  EXPECT_EQ(visible(Mask::kCausal, 1, 2), Range(12, 13));
  EXPECT_EQ(visible(Mask::kCausal, 5, 2), Range(8, 13));
  EXPECT_EQ(visible(Mask::kCausal, 100, 2), Range(0, 13));
  EXPECT_EQ(visible(Mask::kBidirectional, 0, 0), Range(0, 14));
  EXPECT_EQ(visible(Mask::kBidirectional, 3, 1), Range(9, 14));
}

// Ops need no more bytes of the arena than the documented bounds.
TEST(CpuBackendTest, ArenaBoundsHold) {
  for (const int threads : {1, 3}) {
    const auto backend = *MakeCpuBackend({.threads = threads});
    KvLayer layer;
    layer.kv_heads = 2;
    layer.k_dim = 24;
    layer.v_dim = 20;
    layer.v_offset = 2 * 2 * 24 * kKvBlockTokens;
    layer.block_bytes = 2 * layer.v_offset;
    Buffer buffer(3 * layer.block_bytes);
    layer.arena = buffer.data();
    const std::vector<int32_t> blocks = {0, 1};
    const std::vector<int32_t> other_blocks = {2};
    const KvSpan spans[] = {{0, 33, 0, blocks}, {33, 1, 0, other_blocks}};
    const std::vector<float> data(34 * 8 * 24, 0.5f);
    backend->StoreKv({data.data(), 34, 48}, {data.data(), 34, 40}, layer, spans);
    const AttendCall call = {{data.data(), 34, 192}, 8, 0.1f, layer, spans};
    Arena attend(ActivationBytes(34, 8 * 20) + AttendScratchBytes(call, threads));
    backend->Attend(call, &attend);

    const Weight gate(DType::kQ8_0, 64, 32, 1);
    const Weight down(DType::kQ8_0, 32, 64, 2);
    const FfnWeights weights = {gate.matrix(), gate.matrix(), down.matrix()};
    const std::vector<int32_t> rows = {0, 1, 2};
    const ExpertGroup groups[] = {{&weights, rows, rows}, {&weights, rows, rows}};
    std::vector<float> out(3 * 32);
    Arena ffn(ActivationBytes(3, 32) + ActivationBytes(6, 64) + 2 * kAlignment);
    const Activation x = backend->Quantize({data.data(), 3, 32}, &ffn);
    backend->GroupedFfn(x, groups, {out.data(), 3, 32}, &ffn);
    Arena exact(ActivationBytes(5, 64));
    EXPECT_EQ(backend->Norm({data.data(), 5, 64}, absl::MakeSpan(data.data(), 64), 1e-5f, &exact)
                  .values.rows,
              5);
  }
}

TEST(CpuBackendDeathTest, ContradictionsAreCaught) {
  const auto backend = *MakeCpuBackend({});
  Arena arena(1 << 16);
  const Weight weight(DType::kQ8_0, 16, 32, 1);
  std::vector<float> data(64);
  const Activation x = backend->Quantize({data.data(), 1, 64}, &arena);
  const MatMulTarget target = {.weight = weight.matrix(), .out = MatrixView(data.data(), 1, 16)};
  EXPECT_DEATH(backend->MatMul(x, {&target, 1}), "64 vs 32");
  Activation floats;
  floats.values = ConstMatrixView(data.data(), 1, 32);
  EXPECT_DEATH(backend->MatMul(floats, {&target, 1}), "needs the int8 form");
  EXPECT_DEATH(backend->QuantizeInTwo(floats, &arena), "no int8 form");
  const std::vector<int64_t> rows = {1};
  EXPECT_DEATH(backend->GatherRows({data.data(), 1, 16}, rows, {data.data() + 16, 1, 16}),
               "row 1 of 1");
  const HeadCopy copy = {.heads = 2, .cols = 4, .from_dim = 8, .from_first = 5, .to_dim = 4};
  EXPECT_DEATH(backend->CopyHeads(copy, {data.data(), 1, 16}, {data.data() + 16, 1, 8}),
               "2 heads of 4 columns from 5 of 8 to 0 of 4, in rows of 16 and 8");
  RowScan scan;
  EXPECT_DEATH(backend->ScanRows({data.data(), 1, 16}, NAN, &scan), "limit nan");
}

}  // namespace
}  // namespace tidepool::kernels
