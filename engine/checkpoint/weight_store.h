// WeightStore: a checkpoint's weights in the kernels' layout. Each weight must have the name and
// shape that the model expects.
//
//   ASSIGN_OR_RETURN(auto store, WeightStore::Create(std::move(file), {}));
//   ASSIGN_OR_RETURN(PackedMatrix q, store->Matrix({.name = "blk.0.attn_q.weight",
//                                                   .rows = 576, .cols = 576}));
//
// Matrices of the types in kernels/tensor.h keep their type: F32, F16, BF16 and every quantised
// type except NVFP4. Matrices of other types are dequantised exactly to F32. While a tensor is
// packed, its file pages are dropped, so at most 16 MiB of a tensor are in memory twice. If the
// weights are in a device's memory, parts of at most 16 MiB are packed on the host and then copied.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_WEIGHT_STORE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_WEIGHT_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/checkpoint/checkpoint.h"
#include "kernels/backend.h"
#include "kernels/base/thread_pool.h"
#include "kernels/packed_matrix.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// A matrix [rows, cols] (outputs, inputs) that is a part of a tensor. The tensor's GGUF shape is
// {cols, tensor_rows, slabs}.
struct MatrixRef {
  absl::string_view name;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first_row = 0;  // index of the first row in its slab, for fused tensors such as attn_qkv
  int64_t tensor_rows = 0;  // number of rows of a whole slab; 0: the same as `rows`
  int64_t slab = 0;         // index of the slab, which is the expert in a tensor with all experts
  int64_t slabs = 1;        // number of experts in the tensor
  // If piece_rows is above 0, the matrix consists of pieces of this number of rows. Each piece
  // begins piece_stride rows after the one before, for tensors that are fused head by head.
  int64_t piece_rows = 0;
  int64_t piece_stride = 0;
};

// Which rows of a tensor a matrix has.
struct RowsOfMatrix {
  int64_t first = 0;       // counted over all slabs
  int64_t piece_rows = 0;  // piece_rows and piece_stride are as in MatrixRef
  int64_t piece_stride = 0;

  bool in_order() const { return piece_rows == 0; }
  // The row of the tensor that is row `row` of the matrix.
  int64_t At(int64_t row) const {
    if (in_order()) return first + row;
    return first + row / piece_rows * piece_stride + row % piece_rows;
  }
  // Number of the tensor's rows from the first row of the matrix to its row `rows` - 1.
  int64_t Extent(int64_t rows) const { return At(rows - 1) + 1 - first; }
};

enum class WeightContents : uint8_t {
  kPacked,
  kShapesOnly,  // the name, shape and type of each matrix is checked, but no matrix is loaded
};

struct WeightStoreOptions {
  int threads = 0;  // number of threads for checking and packing; 0: one per CPU
  WeightContents contents = WeightContents::kPacked;
  // If set, matrices are quantised while they are packed. Their types are those of ChooseTypes, and
  // their values are equal to those in the GGUF file that Requantize would write. If unset,
  // matrices keep their types.
  std::optional<GgmlType> quantize_to;
  // The weights are in the memory of this backend, which must outlive the store. Null: they are in
  // the host's memory.
  kernels::KernelBackend* backend = nullptr;
};

// Thread-compatible. Weights exist as long as the store, and never move. Large because each form of
// a tensor has its own methods.
class WeightStore {
 public:
  static absl::StatusOr<std::unique_ptr<WeightStore>> Create(Checkpoint file,
                                                             WeightStoreOptions options);

  // Returns a matrix. The first call for a `ref` packs it, and later calls return the same weights.
  // Returns INVALID_ARGUMENT with the tensor's name if the tensor is missing, has another shape or
  // an unsupported type, or contains a NaN or an infinity (in quantised blocks: in a scale).
  // Returns RESOURCE_EXHAUSTED if the matrix does not fit into the memory.
  absl::StatusOr<kernels::PackedMatrix> Matrix(const MatrixRef& ref);

  // Returns the type and shape of the matrix, without data. Marks the tensor as used. Returns the
  // same errors as Matrix, but does not check values.
  absl::StatusOr<kernels::PackedMatrix> Shape(const MatrixRef& ref);

  // Packs the matrix into `out`, which has PackedBytes(Shape(ref)) bytes, and not into the store's
  // own memory. Returns the same errors as Matrix.
  absl::Status PackInto(const MatrixRef& ref, std::byte* out);

  // Checks that PackInto can read the matrix from the file. Returns DATA_LOSS as Checkpoint::MapIn
  // does, and the errors of Matrix.
  absl::Status CheckReadable(const MatrixRef& ref);

  // Returns a one-dimensional tensor of `size` elements, of any float type, as float32. Vector
  // returns it in the memory for weights, and HostVector in the host's memory.
  absl::StatusOr<absl::Span<const float>> Vector(absl::string_view name, int64_t size);
  absl::StatusOr<absl::Span<const float>> HostVector(absl::string_view name, int64_t size);

  // The rows of a two-dimensional tensor of any float type, such as the biases of experts. The
  // tensor has the shape {size, count}.
  struct RowsRef {
    absl::string_view name;
    int64_t size = 0;
    int64_t count = 1;
  };
  // Checks the tensor's name, shape and type, and marks the tensor as used.
  absl::Status CheckRows(const RowsRef& ref);
  // Returns all rows as float32 [count * size], in the memory for weights.
  absl::StatusOr<absl::Span<const float>> Rows(const RowsRef& ref);
  // Reads row `index` from the file into `out`. The store keeps no copy. Returns the same errors as
  // Rows.
  absl::Status ReadRow(const RowsRef& ref, int64_t index, absl::Span<float> out);
  // Checks that ReadRow can read the row. Returns DATA_LOSS as Checkpoint::MapIn does.
  absl::Status CheckRowReadable(const RowsRef& ref, int64_t index);

  bool Has(absl::string_view name) const { return file_.FindTensor(name) != nullptr; }
  const Checkpoint& file() const { return file_; }
  // Returns the checkpoint to the caller. The store must not be used any more.
  Checkpoint TakeFile() && { return std::move(file_); }
  std::optional<GgmlType> quantize_to() const { return quantize_to_; }
  // The type of a file's tensor after the quantisation on load. If the kernels cannot use this
  // type, the packed matrix has another one.
  GgmlType TypeOf(const GgufTensor& tensor) const { return types_[IndexOf(&tensor)]; }

  // Ends the packing threads and frees their memory. The next call that packs starts new ones.
  void EndThreads() {
    pool_.reset();
    staging_ = kernels::Buffer();
  }

  // Bytes in memory of all matrices and vectors that were returned so far.
  size_t weight_bytes() const { return weight_bytes_; }

  // Names of the tensors that were not used, in file order. A loader calls this at its end, and
  // rejects the file if a tensor was not used. So no tensor is ignored silently.
  std::vector<absl::string_view> Unused() const;

 private:
  // index of the tensor, first row (counted over all slabs), number of rows, rows of a piece
  using MatrixKey = std::tuple<size_t, int64_t, int64_t, int64_t>;

  WeightStore(Checkpoint file, int threads, const WeightStoreOptions& options);
  absl::StatusOr<const GgufTensor*> Require(absl::string_view name,
                                            absl::Span<const int64_t> shape);
  absl::StatusOr<const GgufTensor*> RequireRows(const RowsRef& ref);
  absl::Status CheckFloatType(const GgufTensor& tensor) const;
  size_t IndexOf(const GgufTensor* tensor) const { return tensor - file_.tensors().data(); }
  // The position of a matrix in the file.
  struct Place {
    const GgufTensor* tensor = nullptr;
    RowsOfMatrix rows;
    kernels::PackedMatrix shape;  // the data is not set
  };
  absl::StatusOr<Place> Locate(const MatrixRef& ref);
  // `device` is null if `out` is in the host's memory.
  absl::Status PackRows(const Place& place, kernels::KernelBackend* device, std::byte* out);
  absl::StatusOr<absl::Span<const float>> InMemory(absl::string_view name,
                                                   absl::Span<const float> values);

  Checkpoint file_;
  const WeightContents contents_;
  const std::optional<GgmlType> quantize_to_;
  std::vector<GgmlType> types_;  // the type that each tensor gets, by its index in the file
  const int threads_;
  kernels::KernelBackend* const device_;  // null: the weights are in the host's memory
  // Created by the first packing; deleted by EndThreads. staging_ is memory of the host for packed
  // rows that are copied to a device.
  std::unique_ptr<base::ThreadPool> pool_;
  kernels::Buffer staging_;
  absl::flat_hash_map<MatrixKey, kernels::PackedMatrix> matrices_;
  absl::flat_hash_map<size_t, std::vector<float>> vectors_;  // on the host
  absl::flat_hash_map<size_t, kernels::Buffer> device_vectors_;
  std::vector<kernels::Buffer> buffers_;
  std::vector<bool> used_;  // whether each tensor was used, by its index in the file
  size_t weight_bytes_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_WEIGHT_STORE_H_
