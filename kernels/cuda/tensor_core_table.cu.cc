// Instances of products with tensor cores: types whose codes are indices into a table.
#include "kernels/cuda/tensor_core_kernel.cu.h"

namespace tidepool::kernels::cuda {

template void LaunchTensorCores<DType::kIQ4_NL>(Stream*, TileForm, const TensorCoreCall&, int);
template void LaunchTensorCores<DType::kIQ4_XS>(Stream*, TileForm, const TensorCoreCall&, int);
template void LaunchTensorCores<DType::kMXFP4>(Stream*, TileForm, const TensorCoreCall&, int);

}  // namespace tidepool::kernels::cuda
