// Compares every op of every CPU kernel with the reference, case by case.
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
  ExpectNear(*reference, **backend);
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
