// RowChecks: checks the rows of a forward pass. An op looks for numbers that are not finite or too
// large, and the result of the op is checked on the host.
//
//   checks.Begin(backend, {.rows = rows, .waiting = matrices, .time = CheckTime::kAtEnd}, arena);
//   RETURN_IF_ERROR(checks.Hidden(kEmbeddingLayer, x));
//   ... for each layer: checks.Kv(layer, dtype, k, v) and checks.Hidden(layer, x) ...
//   RETURN_IF_ERROR(checks.Finish());
#ifndef TIDEPOOL_ENGINE_MODEL_ROW_CHECKS_H_
#define TIDEPOOL_ENGINE_MODEL_ROW_CHECKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// When a check returns its error. Waiting for a device after each layer would be slow, so its
// results are only read at the end of the pass.
enum class CheckTime : uint8_t { kAtOnce, kAtEnd };

// Thread-compatible. Used for one pass after the other.
class RowChecks {
 public:
  struct Limits {
    int64_t rows = 0;  // of the pass
    // Maximum number of matrices [rows, any] whose checks wait for the end. 1 if the host can use
    // the backend's memory.
    int64_t waiting = 1;
  };
  // Begins a pass, and allocates the memory of its checks. If the host can use the backend's
  // memory, checks are always made at once.
  void Begin(kernels::KernelBackend* backend, const Limits& limits, CheckTime time,
             kernels::Arena* arena);

  // Checks the residual stream after a layer (CheckHiddenValues). Must be called for the embedding
  // first, then for each layer in order.
  absl::Status Hidden(int layer, kernels::ConstMatrixView x);
  // Checks keys and values before they are stored (CheckKvValues). v may have no columns.
  absl::Status Kv(int layer, kernels::DType dtype, kernels::ConstMatrixView k,
                  kernels::ConstMatrixView v);
  // Returns the first error of checks that are made at the end, in the order of the calls. Waits
  // for the backend.
  absl::Status Finish();

  bool at_once() const { return at_once_; }
  // For each row: the layer since which the row is all zeros, or kNotZero. Valid after Finish, or
  // at any time if at_once().
  absl::Span<const int32_t> zero_since() const { return zero_since_; }

 private:
  enum class What : uint8_t { kHidden, kKey, kValue };
  struct Check {
    What what = What::kHidden;
    int layer = 0;
    kernels::DType dtype = kernels::DType::kF32;  // of the KV
  };
  // A scan whose result has not been checked yet.
  struct Pending {
    Check check;
    int64_t rows = 0;
  };

  absl::Status Scan(const Check& check, kernels::ConstMatrixView x, float limit);
  absl::Status Evaluate(const Check& check, absl::Span<const kernels::RowScan> scans);

  kernels::KernelBackend* backend_ = nullptr;
  bool on_host_ = true;
  bool at_once_ = true;
  kernels::RowScan* table_ = nullptr;  // in the backend's memory
  int64_t capacity_ = 0;               // of the table
  int64_t used_ = 0;                   // entries of the table that belong to pending_
  std::vector<Pending> pending_;
  std::vector<kernels::RowScan> copy_;  // on the host
  std::vector<int32_t> zero_since_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_ROW_CHECKS_H_
