// WeightStore: a checkpoint's weights in the form that kernels read, checked against the name and
// shape that the model expects.
//
//   ASSIGN_OR_RETURN(auto store, WeightStore::Create(std::move(file), {}));
//   ASSIGN_OR_RETURN(PackedMatrix q, store->Matrix({.name = "blk.0.attn_q.weight",
//                                                   .rows = 576, .cols = 576}));
//
// F32, F16, BF16 and every quantised type but NVFP4 keep their type (kernels/tensor.h lists them);
// the others are dequantised, exactly, to F32. The re-laid copy replaces the mapped one: a
// tensor's file pages are dropped as it is packed, and never are more than 16 MiB of it there
// twice.
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
  int64_t first_row = 0;  // where the matrix begins in its slab, for fused tensors such as attn_qkv
  int64_t tensor_rows = 0;  // rows of a whole slab; 0: the same as `rows`
  int64_t slab = 0;         // which expert of a stacked tensor
  int64_t slabs = 1;        // experts in the tensor
};

enum class WeightContents : uint8_t {
  kPacked,
  kShapesOnly,  // matrices are checked by name, shape and type, and come without data
};

struct WeightStoreOptions {
  int threads = 0;  // that check and pack; 0: as many as the machine has
  WeightContents contents = WeightContents::kPacked;
  // Matrices are quantised while they are packed, to the types that ChooseTypes gives; the values
  // are those of the GGUF file that Requantize would write. Unset: they keep their types.
  std::optional<GgmlType> quantize_to;
};

// Thread-compatible. Weights handed out live as long as the store and never move.
class WeightStore {
 public:
  static absl::StatusOr<std::unique_ptr<WeightStore>> Create(Checkpoint file,
                                                             WeightStoreOptions options);

  // Packs on first use, and returns the same weights for the same ref later. INVALID_ARGUMENT names
  // the tensor when it is missing, has another shape, is of a type that cannot be read, or holds a
  // NaN or an infinity (in quantised blocks: in a scale).
  absl::StatusOr<kernels::PackedMatrix> Matrix(const MatrixRef& ref);

  // The type and shape that Matrix would give, without data; the same errors but for those of
  // values. Counts as use.
  absl::StatusOr<kernels::PackedMatrix> Shape(const MatrixRef& ref);

  // Packs into `out`, PackedBytes of Shape's long, instead of memory of the store's own. Errors as
  // Matrix.
  absl::Status PackInto(const MatrixRef& ref, std::byte* out);

  // Whether PackInto can read the matrix from the file: DATA_LOSS as Checkpoint::MapIn, and errors
  // as Matrix.
  absl::Status CheckReadable(const MatrixRef& ref);

  // A tensor of `size` elements in one dimension, of any float type, as float32.
  absl::StatusOr<absl::Span<const float>> Vector(absl::string_view name, int64_t size);

  bool Has(absl::string_view name) const { return file_.FindTensor(name) != nullptr; }
  const Checkpoint& file() const { return file_; }
  std::optional<GgmlType> quantize_to() const { return quantize_to_; }
  // The type in which a tensor of the file is packed, before those that must be dequantised are.
  GgmlType TypeOf(const GgufTensor& tensor) const { return types_[IndexOf(&tensor)]; }

  // Ends the threads that pack; what is packed later starts them again.
  void EndThreads() { pool_.reset(); }

  // Resident bytes of all matrices and vectors handed out so far.
  size_t weight_bytes() const { return weight_bytes_; }

  // Tensors of which nothing was ever asked for, in file order. A loader that is done rejects what
  // it would otherwise ignore in silence.
  std::vector<absl::string_view> Unused() const;

 private:
  // Tensor index, first row counted over all slabs, rows.
  using MatrixKey = std::tuple<size_t, int64_t, int64_t>;

  WeightStore(Checkpoint file, int threads, const WeightStoreOptions& options);
  absl::StatusOr<const GgufTensor*> Require(absl::string_view name, absl::string_view shape);
  size_t IndexOf(const GgufTensor* tensor) const { return tensor - file_.tensors().data(); }
  // Where a matrix lies in the file.
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
  std::unique_ptr<base::ThreadPool> pool_;  // while there is something to pack
  absl::flat_hash_map<MatrixKey, kernels::PackedMatrix> matrices_;
  absl::flat_hash_map<size_t, std::vector<float>> vectors_;
  std::vector<kernels::Buffer> buffers_;
  std::vector<bool> used_;  // by tensor index
  size_t weight_bytes_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_WEIGHT_STORE_H_
