#include "kernels/cuda/product.h"

#include <algorithm>

#include "kernels/panel.h"

namespace tidepool::kernels::cuda {
namespace {

// A grid has at most 65535 blocks in y.
constexpr size_t kMaxJobs = 32768;

bool IsInteger(const CudaContext& context, DType dtype) {
  return context.precision == Precision::kFast && IsQuantised(dtype);
}

void StartJobs(const CudaContext& context, DType dtype, const JobInput& input, int64_t cols,
               absl::Span<const ProductJob> jobs) {
  ProductLaunch launch = {context.stream, input, {}, cols, static_cast<int>(jobs.size()), 0, 0};
  for (const ProductJob& job : jobs) {
    launch.max_outputs = std::max(launch.max_outputs, job.outputs);
    launch.rows = std::max(launch.rows, job.rows);
  }
  if (jobs.size() <= JobTable::kInside) {
    std::copy(jobs.begin(), jobs.end(), launch.table.inside);
  } else {
    launch.table.outside = context.staging->Carry(jobs);
  }
  if (IsInteger(context, dtype)) {
    VisitQuantType(dtype, [&](auto type) { LaunchInt8Product<type()>(launch); });
  } else {
    LaunchFloatProduct(dtype, launch);
  }
}

}  // namespace

JobInput InputOf(const Activation& x) {
  return {.values = x.values.data,
          .stride = x.values.stride,
          .cols = x.values.cols,
          .quants = x.quants,
          .scales = x.scales,
          .sums = x.sums,
          .half_sums = x.half_sums};
}

void ProductList::Add(DType dtype, const ProductJob& job) {
  if (job.outputs == 0) return;
  auto at = std::find_if(types_.begin(), types_.end(),
                         [&](const TypeJobs& jobs) { return jobs.dtype == dtype; });
  if (at == types_.end()) at = types_.insert(at, {dtype, {}});
  for (int32_t done = 0; done < job.rows; done += kJobRows) {
    ProductJob part = job;
    part.first += done;
    part.out_first += done;
    part.rows = std::min(kJobRows, job.rows - done);
    at->jobs.push_back(part);
  }
}

void ProductList::Start(const CudaContext& context) const {
  for (const auto& [dtype, jobs] : types_) {
    for (size_t first = 0; first < jobs.size(); first += kMaxJobs) {
      StartJobs(context, dtype, input_, cols_, absl::MakeConstSpan(jobs).subspan(first, kMaxJobs));
    }
  }
}

}  // namespace tidepool::kernels::cuda
