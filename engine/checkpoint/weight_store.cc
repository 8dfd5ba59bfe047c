#include "engine/checkpoint/weight_store.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/dequantize.h"
#include "engine/checkpoint/quantize.h"
#include "engine/checkpoint/requantize.h"
#include "kernels/allocate.h"
#include "kernels/base/atomic_min.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/math.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::kPanelRows;
using kernels::PackedBytes;
using kernels::PackedMatrix;

// Packed bytes of one work item. It is large enough that distributing items costs little. It is
// small enough that the float32 scratch memory of a dequantised type fits into a cache.
constexpr int64_t kChunkBytes = 256 << 10;

// Maximum bytes of a tensor that are in memory twice: in the pages of the file and packed.
constexpr int64_t kPieceBytes = 16 << 20;

constexpr int64_t kNoBadRow = std::numeric_limits<int64_t>::max();

template <typename T>
T Load(const std::byte* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof(T));
  return value;
}

// Returns whether all numbers are finite. In infinities and NaNs, all bits of the exponent are set.
template <typename T>
bool AllFinite(const std::byte* data, int64_t count, int64_t stride, T exponent) {
  bool bad = false;
  for (int64_t i = 0; i < count; ++i) bad |= (Load<T>(data + i * stride) & exponent) == exponent;
  return !bad;
}

constexpr uint32_t kF32Exponent = 0x7f800000;
constexpr uint16_t kF16Exponent = 0x7c00;
constexpr uint16_t kBF16Exponent = 0x7f80;

// The positions of f16 numbers in a block of a GGUF type. In quantised types, these are scales.
struct HalfPlaces {
  int count = 1;
  int offset = 0;
};

HalfPlaces ScalesOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {2, 0};
    case DType::kQ2_K:
      return {2, 80};
    case DType::kQ3_K:
      return {1, 108};
    case DType::kQ6_K:
      return {1, 208};
    default:
      return {1, 0};
  }
}

// Returns whether all numbers of an MXFP4 row are finite. A number is not finite if its exponent is
// 255, which means NaN, or is so large that code 6 is infinite.
bool ExponentsAreFinite(const std::byte* row, int64_t blocks, int block_bytes) {
  constexpr uint8_t kLargest = 252;
  bool bad = false;
  for (int64_t i = 0; i < blocks; ++i) bad |= Load<uint8_t>(row + i * block_bytes) > kLargest;
  return !bad;
}

// Returns whether all numbers of a row are finite. These are the weights themselves, or the scales
// of quantised blocks.
bool RowIsFinite(DType dtype, const std::byte* row, int64_t cols) {
  const int64_t blocks = kernels::BlockCount(dtype, cols);
  const int block_bytes = kernels::BlockBytes(dtype);
  switch (dtype) {
    case DType::kF32:
      return AllFinite<uint32_t>(row, blocks, block_bytes, kF32Exponent);
    case DType::kBF16:
      return AllFinite<uint16_t>(row, blocks, block_bytes, kBF16Exponent);
    case DType::kMXFP4:
      return ExponentsAreFinite(row, blocks, block_bytes);
    default:
      break;
  }
  const HalfPlaces places = ScalesOf(dtype);
  for (int i = 0; i < places.count; ++i) {
    if (!AllFinite<uint16_t>(row + places.offset + 2 * i, blocks, block_bytes, kF16Exponent)) {
      return false;
    }
  }
  return true;
}

bool IsFloatType(GgmlType type) {
  return type == GgmlType::kF32 || type == GgmlType::kF16 || type == GgmlType::kBF16 ||
         type == GgmlType::kF64;
}

// Thread-safe. Checks and packs the rows of a matrix, a few panels at a time.
class RowPacker {
 public:
  // `type` is the tensor's own type, or the type that it is quantised to. The packer packs the
  // first `count` rows of `rows`.
  RowPacker(const GgufTensor& tensor, GgmlType type, const RowsOfMatrix& rows, int64_t count)
      : tensor_(tensor),
        quantize_to_(type == tensor.type ? std::nullopt : std::optional<GgmlType>(type)),
        as_stored_(type == tensor.type && NativeDType(type).has_value()),
        dtype_(NativeDType(type).value_or(DType::kF32)),
        cols_(tensor.dims[0]),
        rows_(count),
        row_bytes_(tensor.row_bytes()),
        panel_bytes_(PackedBytes(dtype_, kPanelRows, cols_)),
        places_(rows) {}

  int64_t panels() const { return (rows_ + kPanelRows - 1) / kPanelRows; }
  int64_t panel_bytes() const { return panel_bytes_; }
  int64_t grain() const { return std::max<int64_t>(1, kChunkBytes / panel_bytes_); }
  // The first row of the matrix that has a number that is not finite, or kNoBadRow.
  int64_t bad_row() const { return bad_row_.load(std::memory_order_relaxed); }

  // Packs the panels [begin_panel, end_panel) into `out`.
  void Pack(int64_t begin_panel, int64_t end_panel, std::byte* out) {
    const int64_t begin = begin_panel * kPanelRows;
    const int64_t count = std::min(end_panel * kPanelRows, rows_) - begin;
    std::vector<std::byte> gathered;
    const std::byte* source = Rows(begin, count, &gathered);
    std::vector<float> scratch;
    int64_t stride = row_bytes_;
    if (!as_stored_) {
      scratch.resize(count * cols_);
      Dequantize(tensor_.type, source, absl::MakeSpan(scratch));
      source = reinterpret_cast<const std::byte*>(scratch.data());
      stride = cols_ * static_cast<int64_t>(sizeof(float));
    }
    for (int64_t row = 0; row < count; ++row) {
      if (RowIsSound(source + row * stride)) continue;
      base::LowerTo(&bad_row_, begin + row);
      return;
    }
    std::vector<std::byte> quantized;
    if (quantize_to_.has_value()) {
      quantized.resize(PlainBytes(count));
      Quantize(*quantize_to_, scratch, quantized.data());
      source = quantized.data();
    }
    kernels::Pack(dtype_, count, cols_, source, out);
  }

 private:
  bool RowIsSound(const std::byte* row) const {
    if (!RowIsFinite(as_stored_ ? dtype_ : DType::kF32, row, cols_)) return false;
    if (!quantize_to_.has_value()) return true;
    const float largest = LargestQuantizable(*quantize_to_);
    for (int64_t i = 0; i < cols_; ++i) {
      if (std::abs(Load<float>(row + i * sizeof(float))) > largest) return false;
    }
    return true;
  }

  // Bytes of `rows` rows in the type that they are quantised to.
  size_t PlainBytes(int64_t rows) const {
    return rows * kernels::BlockCount(dtype_, cols_) * kernels::BlockBytes(dtype_);
  }

  // Returns `count` rows of the matrix, in order. If the tensor stores them in another order,
  // copies them to `gathered`.
  const std::byte* Rows(int64_t begin, int64_t count, std::vector<std::byte>* gathered) const {
    if (tensor_.rows_in_order() && places_.in_order()) return tensor_.row(places_.At(begin));
    gathered->resize(count * row_bytes_);
    if (places_.in_order()) {
      tensor_.CopyRows(places_.At(begin), count, gathered->data());
    } else {
      for (int64_t i = 0; i < count; ++i) {
        tensor_.CopyRows(places_.At(begin + i), 1, gathered->data() + i * row_bytes_);
      }
    }
    return gathered->data();
  }

  const GgufTensor& tensor_;
  const std::optional<GgmlType> quantize_to_;
  const bool as_stored_;  // the rows are packed without converting them to float32
  const DType dtype_;
  const int64_t cols_;
  const int64_t rows_;
  const int64_t row_bytes_;
  const int64_t panel_bytes_;
  const RowsOfMatrix places_;  // the tensor's row for each row of the matrix
  std::atomic<int64_t> bad_row_{kNoBadRow};
};

// Returns the dimensions of a tensor with matrices.
std::vector<int64_t> ShapeOf(int64_t cols, int64_t rows, int64_t slabs) {
  if (slabs == 1) return {cols, rows};
  return {cols, rows, slabs};
}

// Allocates the memory of a weight. `device` is null for the host. `others` is the total size of
// the weights that were allocated before.
absl::StatusOr<kernels::Buffer> AllocateWeight(absl::string_view name, size_t bytes, size_t others,
                                               kernels::KernelBackend* device) {
  return kernels::AllocateBuffer(
      bytes,
      {.what = absl::StrCat("after ", others, " bytes of other weights, tensor ", name),
       .remedy = "use a smaller model, or quantise it further with --quantize-to"},
      device == nullptr ? kernels::HostMemory() : device->memory());
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightStore>> WeightStore::Create(Checkpoint file,
                                                                 WeightStoreOptions options) {
  constexpr int kMaxThreads = 1024;
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("WeightStoreOptions.threads: ", options.threads,
                                                   ", expected 0 to ", kMaxThreads));
  }
  // hardware_concurrency returns 0 if the number is unknown.
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (options.quantize_to.has_value() &&
      !(CanQuantize(*options.quantize_to) && NativeDType(*options.quantize_to).has_value())) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights cannot be quantised to ", GgmlTypeName(*options.quantize_to)));
  }
  return std::unique_ptr<WeightStore>(new WeightStore(std::move(file), threads, options));
}

WeightStore::WeightStore(Checkpoint file, int threads, const WeightStoreOptions& options)
    : file_(std::move(file)),
      contents_(options.contents),
      quantize_to_(options.quantize_to),
      threads_(threads),
      device_(options.backend == nullptr || options.backend->memory()->on_host() ? nullptr
                                                                                 : options.backend),
      used_(file_.tensors().size(), false) {
  types_.reserve(file_.tensors().size());
  if (quantize_to_.has_value()) {
    for (const TensorChoice& choice : ChooseTypes(file_, {.type = *quantize_to_})) {
      types_.push_back(choice.to);
    }
  } else {
    for (const GgufTensor& tensor : file_.tensors()) types_.push_back(tensor.type);
  }
}

absl::StatusOr<const GgufTensor*> WeightStore::Require(absl::string_view name,
                                                       absl::Span<const int64_t> shape) {
  const GgufTensor* tensor = file_.FindTensor(name);
  if (tensor == nullptr) {
    return file_.Error(name,
                       absl::StrCat("missing, expected a tensor of shape ", GgufShape(shape)));
  }
  used_[IndexOf(tensor)] = true;
  return tensor;
}

absl::StatusOr<WeightStore::Place> WeightStore::Locate(const MatrixRef& ref) {
  const int64_t slab_rows = ref.tensor_rows > 0 ? ref.tensor_rows : ref.rows;
  RowsOfMatrix rows = {ref.first_row, ref.piece_rows, ref.piece_stride};
  CHECK(ref.rows > 0 && ref.cols > 0 && ref.first_row >= 0 &&
        ref.first_row + rows.Extent(ref.rows) <= slab_rows && ref.slab >= 0 &&
        ref.slab < ref.slabs && (ref.piece_rows == 0 || ref.rows % ref.piece_rows == 0))
      << "a bad reference to " << ref.name;
  const std::vector<int64_t> shape = ShapeOf(ref.cols, slab_rows, ref.slabs);
  ASSIGN_OR_RETURN(const GgufTensor* tensor, Require(ref.name, shape));
  if (tensor->dims != std::array<int64_t, 4>{ref.cols, slab_rows, ref.slabs, 1}) {
    return file_.ShapeError(*tensor, shape);
  }
  if (!CanDequantize(tensor->type)) {
    return file_.Error(tensor->name, absl::StrCat("type ", GgmlTypeName(tensor->type),
                                                  " is not supported yet, expected a float type, "
                                                  "Q4_0 to Q8_0, a K-quant, IQ4, MXFP4 or NVFP4"));
  }
  rows.first += ref.slab * slab_rows;
  return Place{tensor,
               rows,
               {NativeDType(TypeOf(*tensor)).value_or(DType::kF32), ref.rows, ref.cols, nullptr}};
}

absl::StatusOr<PackedMatrix> WeightStore::Shape(const MatrixRef& ref) {
  ASSIGN_OR_RETURN(const Place place, Locate(ref));
  return place.shape;
}

absl::Status WeightStore::PackInto(const MatrixRef& ref, std::byte* out) {
  ASSIGN_OR_RETURN(const Place place, Locate(ref));
  return PackRows(place, /*device=*/nullptr, out);
}

absl::Status WeightStore::CheckReadable(const MatrixRef& ref) {
  ASSIGN_OR_RETURN(const Place place, Locate(ref));
  return file_.MapInRows(*place.tensor, place.rows.first, place.rows.Extent(place.shape.rows));
}

absl::StatusOr<PackedMatrix> WeightStore::Matrix(const MatrixRef& ref) {
  ASSIGN_OR_RETURN(const Place place, Locate(ref));
  const MatrixKey key(IndexOf(place.tensor), place.rows.first, ref.rows, ref.piece_rows);
  const auto found = matrices_.find(key);
  if (found != matrices_.end()) return found->second;
  PackedMatrix matrix = place.shape;
  if (contents_ == WeightContents::kPacked) {
    ASSIGN_OR_RETURN(kernels::Buffer buffer,
                     AllocateWeight(ref.name, PackedBytes(matrix.dtype, matrix.rows, matrix.cols),
                                    weight_bytes_, device_));
    RETURN_IF_ERROR(PackRows(place, device_, buffer.data()));
    matrix.data = buffer.data();
    weight_bytes_ += buffer.size();
    buffers_.push_back(std::move(buffer));
  }
  matrices_.emplace(key, matrix);
  return matrix;
}

absl::Status WeightStore::PackRows(const Place& place, kernels::KernelBackend* device,
                                   std::byte* out) {
  const GgufTensor& tensor = *place.tensor;
  const int64_t rows = place.shape.rows;
  RowPacker packer(tensor, TypeOf(tensor), place.rows, rows);
  if (pool_ == nullptr) pool_ = std::make_unique<base::ThreadPool>(threads_);
  const int64_t panel_source_bytes = kPanelRows * tensor.row_bytes();
  int64_t piece_bytes = panel_source_bytes;
  if (device != nullptr) piece_bytes = std::max(piece_bytes, packer.panel_bytes());
  const int64_t piece = std::max<int64_t>(1, kPieceBytes / piece_bytes);
  if (device != nullptr && staging_.size() < static_cast<size_t>(piece * packer.panel_bytes())) {
    staging_ = kernels::Buffer(piece * packer.panel_bytes());
  }
  for (int64_t first = 0; first < packer.panels(); first += piece) {
    const int64_t count = std::min(piece, packer.panels() - first);
    std::byte* const target = out + first * packer.panel_bytes();
    std::byte* const packed = device == nullptr ? target : staging_.data();
    pool_->ParallelFor(count, packer.grain(), [&](int64_t begin, int64_t end, int) {
      packer.Pack(first + begin, first + end, packed + begin * packer.panel_bytes());
    });
    if (device != nullptr) {
      device->CopyIn({packed, static_cast<size_t>(count * packer.panel_bytes())}, target);
    }
    // Drop only the pages of the rows that are packed so far. A page that two pieces share is
    // dropped with the second piece.
    file_.DropRows(tensor, place.rows.first,
                   place.rows.Extent(std::min((first + count) * kPanelRows, rows)));
  }
  if (packer.bad_row() == kNoBadRow) return absl::OkStatus();
  if (TypeOf(tensor) != tensor.type) {
    return file_.RowError(
        tensor, place.rows.At(packer.bad_row()),
        absl::StrCat("has a NaN, an infinity or a number above ",
                     LargestQuantizable(TypeOf(tensor)), ", which ", GgmlTypeName(TypeOf(tensor)),
                     " does not hold; use BF16 or F32"));
  }
  return file_.RowError(tensor, place.rows.At(packer.bad_row()),
                        absl::StrCat("has a NaN or an infinity, expected finite ",
                                     IsFloatType(tensor.type) ? "numbers" : "scales"));
}

absl::StatusOr<absl::Span<const float>> WeightStore::Vector(absl::string_view name, int64_t size) {
  ASSIGN_OR_RETURN(const absl::Span<const float> values, HostVector(name, size));
  return InMemory(name, values);
}

// Returns the values of a tensor in the memory for weights.
absl::StatusOr<absl::Span<const float>> WeightStore::InMemory(absl::string_view name,
                                                              absl::Span<const float> values) {
  if (device_ == nullptr) return values;
  const GgufTensor* tensor = file_.FindTensor(name);
  const size_t index = IndexOf(tensor);
  auto found = device_vectors_.find(index);
  if (found == device_vectors_.end()) {
    const size_t bytes = values.size() * sizeof(float);
    ASSIGN_OR_RETURN(kernels::Buffer buffer, AllocateWeight(name, bytes, weight_bytes_, device_));
    device_->CopyIn({reinterpret_cast<const std::byte*>(values.data()), bytes}, buffer.data());
    found = device_vectors_.emplace(index, std::move(buffer)).first;
  }
  return absl::MakeConstSpan(reinterpret_cast<const float*>(found->second.data()), values.size());
}

absl::StatusOr<absl::Span<const float>> WeightStore::HostVector(absl::string_view name,
                                                                int64_t size) {
  CHECK(size > 0) << "a bad size for " << name;
  ASSIGN_OR_RETURN(const GgufTensor* tensor, Require(name, {size}));
  const int64_t longest = *std::max_element(tensor->dims.begin(), tensor->dims.end());
  if (tensor->elements() != size || longest != size) {
    return file_.ShapeError(*tensor, {size});
  }
  RETURN_IF_ERROR(CheckFloatType(*tensor));
  const auto [found, is_new] = vectors_.try_emplace(IndexOf(tensor));
  std::vector<float>& values = found->second;
  if (!is_new) return absl::MakeConstSpan(values);
  values.resize(size);
  Dequantize(tensor->type, tensor->data, absl::MakeSpan(values));
  if (!RowIsFinite(DType::kF32, reinterpret_cast<const std::byte*>(values.data()), size)) {
    vectors_.erase(found);
    return file_.Error(name, "has a NaN or an infinity, expected finite numbers");
  }
  weight_bytes_ += size * sizeof(float);
  return absl::MakeConstSpan(values);
}

absl::Status WeightStore::CheckFloatType(const GgufTensor& tensor) const {
  if (IsFloatType(tensor.type)) return absl::OkStatus();
  return file_.Error(tensor.name, absl::StrCat("type ", GgmlTypeName(tensor.type),
                                               ", expected F32, F16, BF16 or F64"));
}

absl::StatusOr<const GgufTensor*> WeightStore::RequireRows(const RowsRef& ref) {
  CHECK(ref.size > 0 && ref.count > 0) << "a bad size for " << ref.name;
  ASSIGN_OR_RETURN(const GgufTensor* tensor, Require(ref.name, {ref.size, ref.count}));
  if (tensor->dims != std::array<int64_t, 4>{ref.size, ref.count, 1, 1}) {
    return file_.ShapeError(*tensor, {ref.size, ref.count});
  }
  RETURN_IF_ERROR(CheckFloatType(*tensor));
  return tensor;
}

absl::Status WeightStore::CheckRows(const RowsRef& ref) { return RequireRows(ref).status(); }

absl::StatusOr<absl::Span<const float>> WeightStore::Rows(const RowsRef& ref) {
  ASSIGN_OR_RETURN(const GgufTensor* tensor, RequireRows(ref));
  const auto [found, is_new] = vectors_.try_emplace(IndexOf(tensor));
  std::vector<float>& values = found->second;
  if (!is_new) return InMemory(ref.name, values);
  values.resize(ref.size * ref.count);
  for (int64_t i = 0; i < ref.count; ++i) {
    const absl::Status read =
        ReadRow(ref, i, absl::MakeSpan(values).subspan(i * ref.size, ref.size));
    if (read.ok()) continue;
    vectors_.erase(found);
    return read;
  }
  weight_bytes_ += values.size() * sizeof(float);
  return InMemory(ref.name, values);
}

absl::Status WeightStore::ReadRow(const RowsRef& ref, int64_t index, absl::Span<float> out) {
  ASSIGN_OR_RETURN(const GgufTensor* tensor, RequireRows(ref));
  CHECK(index >= 0 && index < ref.count && static_cast<int64_t>(out.size()) == ref.size);
  Dequantize(tensor->type, tensor->row(index), out);
  if (RowIsFinite(DType::kF32, reinterpret_cast<const std::byte*>(out.data()), ref.size)) {
    return absl::OkStatus();
  }
  return file_.Error(ref.name, "has a NaN or an infinity, expected finite numbers");
}

absl::Status WeightStore::CheckRowReadable(const RowsRef& ref, int64_t index) {
  ASSIGN_OR_RETURN(const GgufTensor* tensor, RequireRows(ref));
  return file_.MapInRows(*tensor, index, 1);
}

std::vector<absl::string_view> WeightStore::Unused() const {
  std::vector<absl::string_view> names;
  for (size_t i = 0; i < used_.size(); ++i) {
    if (!used_[i]) names.push_back(file_.tensors()[i].name);
  }
  return names;
}

}  // namespace tidepool::engine
