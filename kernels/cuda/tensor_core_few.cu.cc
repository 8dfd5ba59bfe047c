// Instances of products of few rows with tensor cores: all types.
#include "kernels/cuda/tensor_core_few.cu.h"

namespace tidepool::kernels::cuda {

template void LaunchFewRows<DType::kQ8_0>(const ProductLaunch& launch);
template void LaunchFewRows<DType::kQ4_0>(const ProductLaunch& launch);
template void LaunchFewRows<DType::kQ4_1>(const ProductLaunch& launch);
template void LaunchFewRows<DType::kQ5_0>(const ProductLaunch& launch);
template void LaunchFewRows<DType::kQ5_1>(const ProductLaunch& launch);
template void LaunchFewRows<DType::kQ2_K>(const ProductLaunch& launch);
template void LaunchFewRows<DType::kQ3_K>(const ProductLaunch& launch);
template void LaunchFewRows<DType::kQ4_K>(const ProductLaunch& launch);
template void LaunchFewRows<DType::kQ5_K>(const ProductLaunch& launch);
template void LaunchFewRows<DType::kQ6_K>(const ProductLaunch& launch);
template void LaunchFewRows<DType::kIQ4_NL>(const ProductLaunch& launch);
template void LaunchFewRows<DType::kIQ4_XS>(const ProductLaunch& launch);
template void LaunchFewRows<DType::kMXFP4>(const ProductLaunch& launch);

}  // namespace tidepool::kernels::cuda
