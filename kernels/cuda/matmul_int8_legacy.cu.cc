// The products of int8 activations, for some types of weights. The types are divided among files,
// because each type takes long to compile.
#include "kernels/cuda/product_int8.cu.h"

namespace tidepool::kernels::cuda {

template void LaunchInt8Product<DType::kQ5_1>(const ProductLaunch& launch);
template void LaunchInt8Product<DType::kIQ4_NL>(const ProductLaunch& launch);
template void LaunchInt8Product<DType::kIQ4_XS>(const ProductLaunch& launch);
template void LaunchInt8Product<DType::kMXFP4>(const ProductLaunch& launch);

}  // namespace tidepool::kernels::cuda
