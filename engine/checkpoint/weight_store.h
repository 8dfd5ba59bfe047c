// WeightStore: a checkpoint's weights in the kernels' layout, checked against the name and shape
// that the model expects.
//
//   ASSIGN_OR_RETURN(auto store, WeightStore::Create(std::move(file), {}));
//   ASSIGN_OR_RETURN(PackedMatrix q, store->Matrix({.name = "blk.0.attn_q.weight",
//                                                   .rows = 576, .cols = 576}));
//
// F32, F16, BF16 and every quantised type except NVFP4 keep their type (kernels/tensor.h lists
// them). The others are dequantised exactly to F32. The packed copy replaces the mapped one: a
// tensor's file pages are dropped as it is packed, so at most 16 MiB of it are in memory twice.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_WEIGHT_STORE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_WEIGHT_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/checkpoint/checkpoint.h"
#include "kernels/base/thread_pool.h"
#include "kernels/packed_matrix.h"

namespace tidepool::engine {

// A matrix [rows, cols] (outputs, inputs) inside a tensor of GGUF shape {cols, tensor_rows, slabs}.
struct MatrixRef {
  absl::string_view name;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first_row = 0;    // first row in its slab, for fused tensors such as attn_qkv
  int64_t tensor_rows = 0;  // rows of a whole slab; 0: equal to `rows`
  int64_t slab = 0;         // index of the expert in a stacked tensor
  int64_t slabs = 1;        // experts in the tensor
};

enum class WeightContents : uint8_t {
  kPacked,
  kShapesOnly,  // matrices are checked by name, shape and type, but not loaded
};

struct WeightStoreOptions {
  int threads = 0;  // threads for checking and packing; 0: one per CPU
  WeightContents contents = WeightContents::kPacked;
  // Matrices are quantised while they are packed, to the types that ChooseTypes gives; the values
  // are those of the GGUF file that Requantize would write. Unset: they keep their types.
  std::optional<GgmlType> quantize_to;
};

// Thread-compatible. Weights live as long as the store and never move.
class WeightStore {
 public:
  static absl::StatusOr<std::unique_ptr<WeightStore>> Create(Checkpoint file,
                                                             WeightStoreOptions options);

  // Packs on first use, and returns the same weights for the same ref later. INVALID_ARGUMENT names
  // the tensor if it is missing, has another shape or an unsupported type, or contains a NaN or an
  // infinity (in quantised blocks: in a scale).
  absl::StatusOr<kernels::PackedMatrix> Matrix(const MatrixRef& ref);

  // Returns the type and shape of the matrix without data. Same errors as Matrix, except that
  // values are not checked. Counts as use.
  absl::StatusOr<kernels::PackedMatrix> Shape(const MatrixRef& ref);

  // Packs into `out`, which has PackedBytes(Shape(ref)) bytes, instead of the store's own memory.
  // Same errors as Matrix.
  absl::Status PackInto(const MatrixRef& ref, std::byte* out);

  // Checks that PackInto can read the matrix from the file. DATA_LOSS as in Checkpoint::MapIn, and
  // the errors of Matrix.
  absl::Status CheckReadable(const MatrixRef& ref);

  // Returns a one-dimensional tensor of `size` elements, of any float type, as float32.
  absl::StatusOr<absl::Span<const float>> Vector(absl::string_view name, int64_t size);

  // Rows of a two-dimensional tensor of any float type, such as the biases of experts: shape
  // {size, count}.
  struct RowsRef {
    absl::string_view name;
    int64_t size = 0;
    int64_t count = 1;
  };
  // Checks name, shape and type. Counts as use.
  absl::Status CheckRows(const RowsRef& ref);
  // Returns all rows as float32 [count * size].
  absl::StatusOr<absl::Span<const float>> Rows(const RowsRef& ref);
  // Reads row `index` from the file into `out`, without keeping it. Same errors as Rows.
  absl::Status ReadRow(const RowsRef& ref, int64_t index, absl::Span<float> out);
  // Checks that ReadRow can read the row. DATA_LOSS as in Checkpoint::MapIn.
  absl::Status CheckRowReadable(const RowsRef& ref, int64_t index);

  bool Has(absl::string_view name) const { return file_.FindTensor(name) != nullptr; }
  const Checkpoint& file() const { return file_; }
  std::optional<GgmlType> quantize_to() const { return quantize_to_; }
  // The type that a tensor of the file has after quantisation on load, before any dequantisation.
  GgmlType TypeOf(const GgufTensor& tensor) const { return types_[IndexOf(&tensor)]; }

  // Ends the packing threads. The next call that packs starts them again.
  void EndThreads() { pool_.reset(); }

  // Resident bytes of all matrices and vectors returned so far.
  size_t weight_bytes() const { return weight_bytes_; }

  // Names of unused tensors, in file order. At the end, a loader rejects the file if there are any,
  // instead of ignoring them silently.
  std::vector<absl::string_view> Unused() const;

 private:
  // Tensor index, first row counted over all slabs, number of rows.
  using MatrixKey = std::tuple<size_t, int64_t, int64_t>;

  WeightStore(Checkpoint file, int threads, const WeightStoreOptions& options);
  absl::StatusOr<const GgufTensor*> Require(absl::string_view name, absl::string_view shape);
  absl::StatusOr<const GgufTensor*> RequireRows(const RowsRef& ref);
  absl::Status CheckFloatType(const GgufTensor& tensor) const;
  size_t IndexOf(const GgufTensor* tensor) const { return tensor - file_.tensors().data(); }
  // The position of a matrix in the file.
  struct Place {
    const GgufTensor* tensor = nullptr;
    int64_t first_row = 0;        // counted over all slabs
    kernels::PackedMatrix shape;  // without data
  };
  absl::StatusOr<Place> Locate(const MatrixRef& ref);
  absl::Status PackRows(const Place& place, std::byte* out);

  Checkpoint file_;
  const WeightContents contents_;
  const std::optional<GgmlType> quantize_to_;
  std::vector<GgmlType> types_;  // by tensor index
  const int threads_;
  std::unique_ptr<base::ThreadPool> pool_;  // exists while there is something to pack
  absl::flat_hash_map<MatrixKey, kernels::PackedMatrix> matrices_;
  absl::flat_hash_map<size_t, std::vector<float>> vectors_;
  std::vector<kernels::Buffer> buffers_;
  std::vector<bool> used_;  // by tensor index
  size_t weight_bytes_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_WEIGHT_STORE_H_
