// Products of a few rows with a weight, one job for each part of a product. All ops that multiply
// become lists of jobs.
#ifndef TIDEPOOL_KERNELS_CUDA_PRODUCT_H_
#define TIDEPOOL_KERNELS_CUDA_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_ops.h"

namespace tidepool::kernels::cuda {

// Maximum number of rows of x that one job multiplies.
inline constexpr int kJobRows = 8;

// The left operands of jobs, in device memory.
struct JobInput {
  const float* values = nullptr;
  int64_t stride = 0;  // number of floats between two rows of `values`
  int64_t cols = 0;    // number of columns of the int8 form
  const int8_t* quants = nullptr;
  const float* scales = nullptr;
  const float* sums = nullptr;
  const int16_t* half_sums = nullptr;
  // If not null, row i is row x_rows[i] of x, and result i is row out_rows[i].
  const int32_t* x_rows = nullptr;
  const int32_t* out_rows = nullptr;
};

// Multiplies rows [first, first + rows) of the input (or of x_rows) with a weight. The results are
// the rows from out_first on (or of out_rows).
struct ProductJob {
  const std::byte* panels = nullptr;
  const float* bias = nullptr;  // null if there is none
  float* out = nullptr;
  int64_t out_stride = 0;
  int32_t outputs = 0;  // rows of the weight
  int32_t column = 0;   // first column of x to use
  int32_t first = 0;
  int32_t out_first = 0;
  int32_t rows = 0;
  bool add = false;  // Store::kAdd
};

JobInput InputOf(const Activation& x);

// Jobs with the same input, whose weights have the same number of columns. Thread-compatible.
class ProductList {
 public:
  ProductList(const JobInput& input, int64_t cols) : input_(input), cols_(cols) {}

  // Adds the product of job.rows rows (any number) with a weight of type `dtype`.
  void Add(DType dtype, const ProductJob& job);
  // Starts the kernels of all jobs.
  void Start(const CudaContext& context) const;

 private:
  struct TypeJobs {
    DType dtype;
    std::vector<ProductJob> jobs;
  };

  JobInput input_;
  int64_t cols_;
  std::vector<TypeJobs> types_;
};

// A table of jobs as an argument of a kernel. If there are at most kInside jobs, the argument
// itself contains them. Otherwise they are in device memory.
struct JobTable {
  static constexpr int kInside = 16;
  ProductJob inside[kInside];
  const ProductJob* outside = nullptr;
};

// The arguments of the two functions below. LaunchInt8Product is for int8 activations and quantised
// weights, LaunchFloatProduct for float activations and any weights. `rows` is the largest number
// of rows of a job.
struct ProductLaunch {
  Stream* stream;
  JobInput input;
  JobTable table;
  int64_t cols;
  int jobs;
  int max_outputs;
  int rows;
};
template <DType kType>
void LaunchInt8Product(const ProductLaunch& launch);
void LaunchFloatProduct(DType dtype, const ProductLaunch& launch);

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_PRODUCT_H_
