// Instances of products with tensor cores: the types with eight blocks in a record.
#include "kernels/cuda/tensor_core_kernel.cu.h"

namespace tidepool::kernels::cuda {

template void LaunchTensorCores<DType::kQ2_K>(Stream*, TileForm, const TensorCoreCall&, int);
template void LaunchTensorCores<DType::kQ3_K>(Stream*, TileForm, const TensorCoreCall&, int);
template void LaunchTensorCores<DType::kQ4_K>(Stream*, TileForm, const TensorCoreCall&, int);
template void LaunchTensorCores<DType::kQ5_K>(Stream*, TileForm, const TensorCoreCall&, int);
template void LaunchTensorCores<DType::kQ6_K>(Stream*, TileForm, const TensorCoreCall&, int);

}  // namespace tidepool::kernels::cuda
