// For tools/gpu_sizes: prints the number of threads and the bytes of shared memory with which the
// main kernels of kernels/cuda are started. Each line is "kernel|name|threads|bytes". `kernel` is
// the name in the object files, without the types of template arguments. The sizes are for decoding
// or for a prompt, with 4096 columns and heads of 128 elements.
#include <cstdint>

#include "absl/strings/str_format.h"
#include "kernels/cuda/attention_block.cu.h"
#include "kernels/cuda/product_int8.cu.h"
#include "kernels/cuda/tensor_core_call.cu.h"
#include "kernels/tensor.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int64_t kCols = 4096;
constexpr int kHeadDim = 128;

template <DType kType, int kRows>
void PrintInt8() {
  constexpr int kThreads = Int8Threads<kType, kRows>(kCols);
  absl::PrintF("Int8ProductKernel<%d, %d>|%s product, %d %s|%d|%d\n", static_cast<int>(kType),
               kRows, DTypeName(kType), kRows, kRows == 1 ? "row" : "rows", kThreads,
               Int8SharedBytes<kType, kRows>(kThreads));
}

template <DType kType>
void PrintMma() {
  absl::PrintF("MmaProductKernel<%d>|%s product, 8 rows|%d|%d\n", static_cast<int>(kType),
               DTypeName(kType), kMmaThreads, MmaSharedBytes<kType>(kJobRows, kCols));
}

template <DType kType>
void PrintTiles() {
  constexpr const char* kNames[] = {"product, many rows", "product, 16 to 47 rows",
                                    "gate and up, many rows", "gate and up, 16 to 47 rows"};
  for (int form = 0; form < 4; ++form) {
    const TileShape shape = ShapeOf(static_cast<TileForm>(form));
    absl::PrintF("TensorCoreKernel<%d, %d>|%s %s|%d|%d\n", static_cast<int>(kType), form,
                 DTypeName(kType), kNames[form], shape.threads(), shape.shared_bytes());
  }
}

template <DType kType, int kRows, int kTiles>
void PrintAttention() {
  absl::PrintF("AttendKernel<%d, %d, %d>|attention %s, %d queries|%d|%d\n", static_cast<int>(kType),
               kRows, kTiles, DTypeName(kType), kRows * kTiles, kAttendThreads,
               AttendSharedBytes(kRows * kTiles, kHeadDim));
}

template <DType kType>
void PrintProducts() {
  PrintInt8<kType, 1>();
  if constexpr (kMaxInt8Rows < kType >> 1) PrintInt8<kType, kMaxInt8Rows<kType>>();
  PrintMma<kType>();
  PrintTiles<kType>();
}

}  // namespace
}  // namespace tidepool::kernels::cuda

int main() {
  using tidepool::kernels::DType;
  namespace cuda = tidepool::kernels::cuda;
  cuda::PrintProducts<DType::kQ4_0>();
  cuda::PrintProducts<DType::kQ4_K>();
  cuda::PrintProducts<DType::kQ6_K>();
  cuda::PrintProducts<DType::kQ8_0>();
  cuda::PrintAttention<DType::kF16, 4, 1>();
  cuda::PrintAttention<DType::kF16, 8, 4>();
  cuda::PrintAttention<DType::kQ8_0, 4, 1>();
  cuda::PrintAttention<DType::kQ8_0, 8, 4>();
  return 0;
}
