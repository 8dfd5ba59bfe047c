#include "engine/checkpoint/weight_store.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/dequantize.h"
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

// Packed bytes of one work item: large enough that distributing items costs little, and small
// enough that the float32 scratch of a dequantised type stays in a cache.
constexpr int64_t kChunkBytes = 256 << 10;

// Limits the bytes of a tensor that are in memory twice: in the file's pages and packed.
constexpr int64_t kPieceBytes = 16 << 20;

constexpr int64_t kNoBadRow = std::numeric_limits<int64_t>::max();

template <typename T>
T Load(const std::byte* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof(T));
  return value;
}

// Infinities and NaNs have every exponent bit set.
template <typename T>
bool AllFinite(const std::byte* data, int64_t count, int64_t stride, T exponent) {
  bool bad = false;
  for (int64_t i = 0; i < count; ++i) bad |= (Load<T>(data + i * stride) & exponent) == exponent;
  return !bad;
}

constexpr uint32_t kF32Exponent = 0x7f800000;
constexpr uint16_t kF16Exponent = 0x7c00;
constexpr uint16_t kBF16Exponent = 0x7f80;

// The positions of f16 numbers in a block of a GGUF type, such as the scales of quantised types.
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

// True if an MXFP4 row has neither a NaN exponent (255) nor one for which code 6 is infinite.
bool ExponentsAreFinite(const std::byte* row, int64_t blocks, int block_bytes) {
  constexpr uint8_t kLargest = 252;
  bool bad = false;
  for (int64_t i = 0; i < blocks; ++i) bad |= Load<uint8_t>(row + i * block_bytes) > kLargest;
  return !bad;
}

// True if all numbers of a row are finite: the weights themselves, or the scales of quantised
// blocks.
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

// Thread-safe. Checks and packs a range of rows of a tensor, some panels at a time.
class RowPacker {
 public:
  RowPacker(const GgufTensor& tensor, int64_t first_row, int64_t rows, std::byte* out)
      : type_(tensor.type),
        native_(NativeDType(tensor.type).has_value()),
        dtype_(NativeDType(tensor.type).value_or(DType::kF32)),
        cols_(tensor.dims[0]),
        rows_(rows),
        row_bytes_(tensor.row_bytes()),
        panel_bytes_(PackedBytes(dtype_, kPanelRows, cols_)),
        source_(tensor.data + first_row * row_bytes_),
        out_(out) {}

  int64_t panels() const { return (rows_ + kPanelRows - 1) / kPanelRows; }
  int64_t grain() const { return std::max<int64_t>(1, kChunkBytes / panel_bytes_); }
  // The first row of the range with a number that is not finite, or kNoBadRow.
  int64_t bad_row() const { return bad_row_.load(std::memory_order_relaxed); }

  void Pack(int64_t begin_panel, int64_t end_panel) {
    const int64_t begin = begin_panel * kPanelRows;
    const int64_t count = std::min(end_panel * kPanelRows, rows_) - begin;
    const std::byte* source = source_ + begin * row_bytes_;
    std::vector<float> scratch;
    int64_t stride = row_bytes_;
    if (!native_) {
      scratch.resize(count * cols_);
      Dequantize(type_, source, absl::MakeSpan(scratch));
      source = reinterpret_cast<const std::byte*>(scratch.data());
      stride = cols_ * static_cast<int64_t>(sizeof(float));
    }
    for (int64_t row = 0; row < count; ++row) {
      if (RowIsFinite(dtype_, source + row * stride, cols_)) continue;
      base::LowerTo(&bad_row_, begin + row);
      return;
    }
    kernels::Pack(dtype_, count, cols_, source, out_ + begin_panel * panel_bytes_);
  }

 private:
  const GgmlType type_;
  const bool native_;
  const DType dtype_;
  const int64_t cols_;
  const int64_t rows_;
  const int64_t row_bytes_;
  const int64_t panel_bytes_;
  const std::byte* const source_;
  std::byte* const out_;
  std::atomic<int64_t> bad_row_{kNoBadRow};
};

std::string ShapeOf(int64_t cols, int64_t rows, int64_t slabs) {
  if (slabs == 1) return absl::StrCat("{", cols, ", ", rows, "}");
  return absl::StrCat("{", cols, ", ", rows, ", ", slabs, "}");
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightStore>> WeightStore::Create(GgufFile file,
                                                                 WeightStoreOptions options) {
  constexpr int kMaxThreads = 1024;
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("WeightStoreOptions.threads: ", options.threads,
                                                   ", expected 0 to ", kMaxThreads));
  }
  // hardware_concurrency may return 0 if it is unknown.
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::unique_ptr<WeightStore>(new WeightStore(std::move(file), threads, options.contents));
}

WeightStore::WeightStore(GgufFile file, int threads, WeightContents contents)
    : file_(std::move(file)),
      contents_(contents),
      threads_(threads),
      used_(file_.tensors().size(), false) {}

absl::StatusOr<const GgufTensor*> WeightStore::Require(absl::string_view name,
                                                       absl::string_view shape) {
  const GgufTensor* tensor = file_.FindTensor(name);
  if (tensor == nullptr) {
    return file_.Error(name, absl::StrCat("missing, expected a tensor of shape ", shape));
  }
  used_[IndexOf(tensor)] = true;
  return tensor;
}

absl::StatusOr<WeightStore::Place> WeightStore::Locate(const MatrixRef& ref) {
  const int64_t slab_rows = ref.tensor_rows > 0 ? ref.tensor_rows : ref.rows;
  CHECK(ref.rows > 0 && ref.cols > 0 && ref.first_row >= 0 &&
        ref.first_row <= slab_rows - ref.rows && ref.slab >= 0 && ref.slab < ref.slabs)
      << "a bad reference to " << ref.name;
  const std::string shape = ShapeOf(ref.cols, slab_rows, ref.slabs);
  ASSIGN_OR_RETURN(const GgufTensor* tensor, Require(ref.name, shape));
  if (tensor->dims != std::array<int64_t, 4>{ref.cols, slab_rows, ref.slabs, 1}) {
    return file_.Error(ref.name,
                       absl::StrCat("shape ", tensor->ShapeString(), ", expected ", shape));
  }
  if (!CanDequantize(tensor->type)) {
    return file_.Error(tensor->name, absl::StrCat("type ", GgmlTypeName(tensor->type),
                                                  " is not supported yet, expected a float type, "
                                                  "Q4_0 to Q8_0, a K-quant, IQ4, MXFP4 or NVFP4"));
  }
  return Place{tensor,
               ref.slab * slab_rows + ref.first_row,
               {NativeDType(tensor->type).value_or(DType::kF32), ref.rows, ref.cols, nullptr}};
}

absl::StatusOr<PackedMatrix> WeightStore::Shape(const MatrixRef& ref) {
  ASSIGN_OR_RETURN(const Place place, Locate(ref));
  return place.shape;
}

absl::Status WeightStore::PackInto(const MatrixRef& ref, std::byte* out) {
  ASSIGN_OR_RETURN(const Place place, Locate(ref));
  return PackRows(place, out);
}

absl::Status WeightStore::CheckReadable(const MatrixRef& ref) {
  ASSIGN_OR_RETURN(const Place place, Locate(ref));
  const size_t row_bytes = place.tensor->row_bytes();
  return file_.MapIn(place.tensor->data + place.first_row * row_bytes,
                     place.shape.rows * row_bytes);
}

absl::StatusOr<PackedMatrix> WeightStore::Matrix(const MatrixRef& ref) {
  ASSIGN_OR_RETURN(const Place place, Locate(ref));
  const MatrixKey key(IndexOf(place.tensor), place.first_row, ref.rows);
  const auto found = matrices_.find(key);
  if (found != matrices_.end()) return found->second;
  PackedMatrix matrix = place.shape;
  if (contents_ == WeightContents::kPacked) {
    kernels::Buffer buffer(PackedBytes(matrix.dtype, matrix.rows, matrix.cols));
    RETURN_IF_ERROR(PackRows(place, buffer.data()));
    matrix.data = buffer.data();
    weight_bytes_ += buffer.size();
    buffers_.push_back(std::move(buffer));
  }
  matrices_.emplace(key, matrix);
  return matrix;
}

absl::Status WeightStore::PackRows(const Place& place, std::byte* out) {
  const GgufTensor& tensor = *place.tensor;
  const int64_t first_row = place.first_row;
  const int64_t rows = place.shape.rows;
  RowPacker packer(tensor, first_row, rows, out);
  if (pool_ == nullptr) pool_ = std::make_unique<base::ThreadPool>(threads_);
  const int64_t panel_source_bytes = kPanelRows * tensor.row_bytes();
  const int64_t piece = std::max<int64_t>(1, kPieceBytes / panel_source_bytes);
  for (int64_t first = 0; first < packer.panels(); first += piece) {
    const int64_t count = std::min(piece, packer.panels() - first);
    pool_->ParallelFor(count, packer.grain(), [&](int64_t begin, int64_t end, int) {
      packer.Pack(first + begin, first + end);
    });
    // Drop pages only up to here: the page that two pieces share is dropped with the second.
    file_.DropPages(tensor.data + first_row * tensor.row_bytes(),
                    std::min((first + count) * kPanelRows, rows) * tensor.row_bytes());
  }
  if (packer.bad_row() == kNoBadRow) return absl::OkStatus();
  return file_.Error(tensor.name,
                     absl::StrCat("row ", first_row + packer.bad_row(),
                                  " has a NaN or an infinity, expected finite ",
                                  TypeInfo(tensor.type).block_elements > 1 ? "scales" : "numbers"));
}

absl::StatusOr<absl::Span<const float>> WeightStore::Vector(absl::string_view name, int64_t size) {
  CHECK(size > 0) << "a bad size for " << name;
  const std::string shape = absl::StrCat("{", size, "}");
  ASSIGN_OR_RETURN(const GgufTensor* tensor, Require(name, shape));
  const int64_t longest = *std::max_element(tensor->dims.begin(), tensor->dims.end());
  if (tensor->elements() != size || longest != size) {
    return file_.Error(name, absl::StrCat("shape ", tensor->ShapeString(), ", expected ", shape));
  }
  if (!IsFloatType(tensor->type)) {
    return file_.Error(name, absl::StrCat("type ", GgmlTypeName(tensor->type),
                                          ", expected F32, F16, BF16 or F64"));
  }
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

std::vector<absl::string_view> WeightStore::Unused() const {
  std::vector<absl::string_view> names;
  for (size_t i = 0; i < used_.size(); ++i) {
    if (!used_[i]) names.push_back(file_.tensors()[i].name);
  }
  return names;
}

}  // namespace tidepool::engine
