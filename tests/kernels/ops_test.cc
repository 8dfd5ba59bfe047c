// Compares every op of every CPU kernel with the reference, case by case.
#include <cmath>
#include <memory>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/op_cases.h"

namespace tidepool::kernels {
namespace {

class OpsTest : public testing::TestWithParam<CpuOptions> {};

TEST_P(OpsTest, AgreeWithTheReference) {
  auto backend = MakeCpuBackend(GetParam());
  if (!backend.ok()) GTEST_SKIP() << backend.status();
  const auto reference = MakeReferenceBackend(GetParam().precision);
  for (const OpCase& test_case : OpCases(GetParam().precision)) {
    SCOPED_TRACE(test_case.name);
    const std::vector<float> expected = test_case.run(*reference).values;
    const std::vector<float> actual = test_case.run(**backend).values;
    const std::vector<double> tolerance = test_case.tolerance(expected);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const double error = std::fabs(static_cast<double>(actual[i]) - expected[i]);
      const double allowed = i < tolerance.size() ? tolerance[i] : 0;
      // Written so that a NaN fails, and equal values such as infinities pass.
      ASSERT_TRUE(actual[i] == expected[i] || error <= allowed)
          << "element " << i << ": " << actual[i] << ", expected " << expected[i] << " within "
          << allowed;
    }
  }
}

std::string NameOf(const testing::TestParamInfo<CpuOptions>& info) {
  const CpuOptions& options = info.param;
  const char* const isa = options.isa == Isa::kPortable ? "Portable"
                          : options.isa == Isa::kAvx2   ? "Avx2"
                          : options.isa == Isa::kAvx512 ? "Avx512"
                                                        : "Avx512Vnni";
  return isa + std::string(options.precision == Precision::kFast ? "Fast" : "Exact") +
         std::to_string(options.threads);
}

INSTANTIATE_TEST_SUITE_P(Forms, OpsTest,
                         testing::Values(CpuOptions{1, Precision::kFast, Isa::kPortable},
                                         CpuOptions{3, Precision::kExact, Isa::kPortable},
                                         CpuOptions{1, Precision::kFast, Isa::kAvx2},
                                         CpuOptions{2, Precision::kFast, Isa::kAvx2},
                                         CpuOptions{1, Precision::kExact, Isa::kAvx2},
                                         CpuOptions{3, Precision::kExact, Isa::kAvx2},
                                         CpuOptions{1, Precision::kFast, Isa::kAvx512},
                                         CpuOptions{2, Precision::kExact, Isa::kAvx512},
                                         CpuOptions{1, Precision::kFast, Isa::kAvx512Vnni},
                                         CpuOptions{3, Precision::kFast, Isa::kAvx512Vnni},
                                         CpuOptions{1, Precision::kExact, Isa::kAvx512Vnni}),
                         NameOf);

}  // namespace
}  // namespace tidepool::kernels
