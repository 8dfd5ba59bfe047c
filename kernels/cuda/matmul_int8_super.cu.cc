// The products of int8 activations, for some types of weights. The types are divided among files,
// because each type takes long to compile.
#include "kernels/cuda/product_int8.cu.h"

namespace tidepool::kernels::cuda {

template void LaunchInt8Product<DType::kQ4_K>(const ProductLaunch& launch);
template void LaunchInt8Product<DType::kQ5_K>(const ProductLaunch& launch);
template void LaunchInt8Product<DType::kQ6_K>(const ProductLaunch& launch);
template void LaunchInt8Product<DType::kQ3_K>(const ProductLaunch& launch);
template void LaunchInt8Product<DType::kQ2_K>(const ProductLaunch& launch);

}  // namespace tidepool::kernels::cuda
