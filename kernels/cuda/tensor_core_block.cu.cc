// Instances of products with tensor cores: types whose records are one block.
#include "kernels/cuda/tensor_core_kernel.cu.h"

namespace tidepool::kernels::cuda {

template void LaunchTensorCores<DType::kQ8_0>(Stream*, TileForm, const TensorCoreCall&, int);
template void LaunchTensorCores<DType::kQ4_0>(Stream*, TileForm, const TensorCoreCall&, int);
template void LaunchTensorCores<DType::kQ4_1>(Stream*, TileForm, const TensorCoreCall&, int);
template void LaunchTensorCores<DType::kQ5_0>(Stream*, TileForm, const TensorCoreCall&, int);
template void LaunchTensorCores<DType::kQ5_1>(Stream*, TileForm, const TensorCoreCall&, int);

}  // namespace tidepool::kernels::cuda
