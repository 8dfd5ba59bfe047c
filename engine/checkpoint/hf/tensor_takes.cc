#include "engine/checkpoint/hf/tensor_takes.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/checkpoint/dequantize.h"
#include "engine/checkpoint/hf/json_file.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

constexpr int64_t kMxfp4Elements = 32;
constexpr int64_t kMxfp4Packed = kMxfp4Elements / 2;  // bytes of 32 elements

bool IsFloat(GgmlType type) {
  return type == GgmlType::kF32 || type == GgmlType::kF16 || type == GgmlType::kBF16;
}

// Hugging Face stores the elements 2i and 2i + 1 in one byte. GGUF stores the elements i and i + 16
// in one byte.
void RepackMxfp4(const std::byte* from, std::byte scale, std::byte* to) {
  constexpr std::byte kLow{0x0F};
  constexpr std::byte kHigh{0xF0};
  to[0] = scale;
  for (int64_t i = 0; i < kMxfp4Packed / 2; ++i) {
    const std::byte first = from[i];
    const std::byte second = from[i + kMxfp4Packed / 2];
    to[2 * i + 1] = (first & kLow) | (second & kLow) << 4;
    to[2 * i + 2] = first >> 4 | (second & kHigh);
  }
}

}  // namespace

void TensorTaker::Release(const std::byte* data, size_t bytes) {
#ifdef MADV_PAGEOUT
  const size_t page = sysconf(_SC_PAGESIZE);
  const size_t before = (page - reinterpret_cast<uintptr_t>(data) % page) % page;
  if (before >= bytes) return;
  const size_t whole = (bytes - before) / page * page;
  // If this fails, nothing is lost, because the kernel can also reclaim these pages when it needs
  // memory.
  if (whole > 0) madvise(const_cast<std::byte*>(data) + before, whole, MADV_PAGEOUT);
#endif
}

absl::Status TensorTaker::WrongShape(const TensorSource& source, absl::string_view expected) {
  return FileError(
      source.path, source.tensor->name,
      absl::StrCat("shape [", absl::StrJoin(source.tensor->shape, ", "), "], expected ", expected));
}

absl::StatusOr<GgufTensor> TensorTaker::Make(const std::string& name, const TensorRule& rule,
                                             const TensorSource& source,
                                             const TensorSource* scales) {
  ASSIGN_OR_RETURN(GgufTensor tensor, Describe(name, source));
  const bool is_mxfp4 =
      rule.take == Take::kMxfp4 || rule.take == Take::kMxfp4Even || rule.take == Take::kMxfp4Odd;
  if (!is_mxfp4 && !IsFloat(tensor.type)) {
    return FileUnsupported(source.path, source.tensor->name,
                           absl::StrCat("type ", GgmlTypeName(tensor.type),
                                        " is not supported, expected F32, F16 or BF16"));
  }
  switch (rule.take) {
    case Take::kAll:
    case Take::kMxfp4Scales:
      break;
    case Take::kRotary:
      RETURN_IF_ERROR(SetRotary(source, &tensor));
      break;
    case Take::kVector:
      tensor.dims = {tensor.elements(), 1, 1, 1};
      tensor.dim_count = 1;
      break;
    case Take::kFirstRows:
    case Take::kSecondRows:
      RETURN_IF_ERROR(HalveRows(rule.take, source, &tensor));
      break;
    case Take::kEvenOfRows:
    case Take::kOddOfRows:
      RETURN_IF_ERROR(SplitRows(rule.take, source, &tensor));
      break;
    case Take::kTransposed:
    case Take::kTransposedEven:
    case Take::kTransposedOdd:
    case Take::kTransposedFirst:
    case Take::kTransposedSecond:
      RETURN_IF_ERROR(Transpose(rule.take, source, &tensor));
      break;
    case Take::kMxfp4:
    case Take::kMxfp4Even:
    case Take::kMxfp4Odd:
      RETURN_IF_ERROR(PackMxfp4(rule.take, source, scales, &tensor));
      break;
    case Take::kMlaKeys:
    case Take::kMlaValues:
      RETURN_IF_ERROR(SplitMla(rule.take, source, &tensor));
      break;
    default:
      RETURN_IF_ERROR(TakeDelta(rule.take, source, &tensor));
      break;
  }
  // In GGUF, vectors and the biases of all experts are F32.
  if (tensor.dim_count == 1 || absl::EndsWith(name, ".bias")) MakeFloat(&tensor);
  return tensor;
}

absl::StatusOr<GgufTensor> TensorTaker::Describe(absl::string_view name,
                                                 const TensorSource& source) {
  const StoredTensor& stored = *source.tensor;
  GgufTensor tensor;
  if (stored.shape.size() > tensor.dims.size()) return WrongShape(source, "at most 4 sizes");
  tensor.name = OwnName(name);
  tensor.type = stored.type;
  tensor.dim_count = static_cast<int>(stored.shape.size());
  std::copy(stored.shape.rbegin(), stored.shape.rend(), tensor.dims.begin());
  tensor.part = source.part;
  tensor.file_offset = stored.file_offset;
  tensor.bytes = stored.bytes;
  tensor.data = source.data;
  return tensor;
}

GgufTensor TensorTaker::Floats(absl::string_view name, absl::Span<const float> values) {
  GgufTensor tensor;
  tensor.name = OwnName(name);
  tensor.dim_count = 1;
  tensor.dims[0] = static_cast<int64_t>(values.size());
  std::memcpy(OwnData(&tensor), values.data(), values.size() * sizeof(float));
  return tensor;
}

std::byte* TensorTaker::Own(size_t bytes) {
  // The memory is not initialised, so that its pages are touched only once.
  owned_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  return owned_.back().get();
}

absl::string_view TensorTaker::OwnName(absl::string_view name) {
  std::byte* const bytes = Own(name.size());
  std::memcpy(bytes, name.data(), name.size());
  return {reinterpret_cast<const char*>(bytes), name.size()};
}

std::byte* TensorTaker::OwnData(GgufTensor* tensor) {
  tensor->bytes = tensor->row_bytes() * tensor->rows();
  std::byte* const data = Own(tensor->bytes);
  tensor->data = data;
  tensor->part = 0;
  tensor->file_offset = 0;
  return data;
}

absl::Status TensorTaker::SetRotary(const TensorSource& source, GgufTensor* tensor) const {
  if (!model_.family->rotary_pairs) return absl::OkStatus();
  const int64_t count = tensor->dims[tensor->dim_count - 1];
  if (tensor->dim_count > 2 || count % model_.head_dim != 0) {
    return WrongShape(source, absl::StrCat("a multiple of head_dim ", model_.head_dim, " rows"));
  }
  tensor->head_rows = model_.head_dim;
  return absl::OkStatus();
}

absl::Status TensorTaker::HalveRows(Take take, const TensorSource& source,
                                    GgufTensor* tensor) const {
  if (tensor->dim_count < 2 || tensor->dims[1] % 2 != 0) {
    return WrongShape(source, "matrices with an even number of rows");
  }
  const size_t slab_bytes = tensor->row_bytes() * tensor->dims[1];
  const size_t skipped = take == Take::kSecondRows ? slab_bytes / 2 : 0;
  tensor->dims[1] /= 2;
  tensor->bytes /= 2;
  tensor->file_offset += skipped;
  tensor->data += skipped;
  if (tensor->dim_count == 3) {
    for (int64_t i = 0; i < tensor->dims[2]; ++i) {
      tensor->slabs.push_back(tensor->data + i * slab_bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status TensorTaker::SplitRows(Take take, const TensorSource& source, GgufTensor* tensor) {
  if (tensor->dim_count != 2 || tensor->dims[0] % 2 != 0) {
    return WrongShape(source, "rows of an even size");
  }
  const std::byte* const from = tensor->data;
  const int64_t size = TypeInfo(tensor->type).block_bytes;
  const int64_t first = take == Take::kOddOfRows ? 1 : 0;
  tensor->dims[0] /= 2;
  std::byte* const to = OwnData(tensor);
  for (int64_t i = 0; i < tensor->elements(); ++i) {
    std::memcpy(to + i * size, from + (2 * i + first) * size, size);
  }
  return absl::OkStatus();
}

absl::Status TensorTaker::Transpose(Take take, const TensorSource& source,
                                    GgufTensor* tensor) const {
  const auto [columns, rows, slabs, _] = tensor->dims;
  const int64_t parts = take == Take::kTransposed ? 1 : 2;
  if (tensor->dim_count != 3 || columns % parts != 0) {
    return WrongShape(source, "three sizes, the last one even");
  }
  // The rows are the columns first, first + row_step, first + 2 * row_step, ... of the file.
  const int64_t taken = columns / parts;
  const bool every_other = take == Take::kTransposedEven || take == Take::kTransposedOdd;
  int64_t first = 0;
  if (take == Take::kTransposedOdd) first = 1;
  if (take == Take::kTransposedSecond) first = taken;
  const int64_t size = TypeInfo(tensor->type).block_bytes;
  tensor->column_step = columns;
  tensor->row_step = every_other ? 2 : 1;
  tensor->dims = {rows, taken, slabs, 1};
  tensor->bytes /= parts;
  tensor->file_offset += first * size;
  tensor->data += first * size;
  for (int64_t slab = 0; slab < slabs; ++slab) {
    tensor->slabs.push_back(tensor->data + slab * rows * columns * size);
  }
  return absl::OkStatus();
}

absl::Status TensorTaker::PackMxfp4(Take take, const TensorSource& blocks,
                                    const TensorSource* scales, GgufTensor* tensor) {
  const int64_t step = take == Take::kMxfp4 ? 1 : 2;
  const int64_t first = take == Take::kMxfp4Odd ? 1 : 0;
  const auto [packed, groups, rows, slabs] = tensor->dims;
  if (tensor->type != GgmlType::kI8 || tensor->dim_count != 4 || packed != kMxfp4Packed ||
      rows % step != 0) {
    return WrongShape(blocks, "U8 blocks of [experts, rows, groups, 16]");
  }
  std::vector<int64_t> expected = blocks.tensor->shape;
  expected.pop_back();
  if (scales == nullptr) {
    return FileError(blocks.path, blocks.tensor->name, "has no scales, expected NAME_scales");
  }
  if (scales->tensor->type != GgmlType::kI8 || scales->tensor->shape != expected) {
    return WrongShape(*scales, absl::StrCat("U8 scales of [", absl::StrJoin(expected, ", "), "]"));
  }
  tensor->type = GgmlType::kMXFP4;
  tensor->dim_count = 3;
  tensor->dims = {groups * kMxfp4Elements, rows / step, slabs, 1};
  std::byte* to = OwnData(tensor);
  for (int64_t row = first; row < rows * slabs; row += step) {
    for (int64_t i = row * groups; i < (row + 1) * groups; ++i) {
      RepackMxfp4(blocks.data + i * kMxfp4Packed, scales->data[i], to);
      to += kMxfp4Packed + 1;
    }
  }
  if (take != Take::kMxfp4Even) Release(blocks.data, blocks.tensor->bytes);
  return absl::OkStatus();
}

absl::Status TensorTaker::SplitMla(Take take, const TensorSource& source, GgufTensor* tensor) {
  const int64_t head_rows = model_.key_dim + model_.value_dim;
  const int64_t columns = tensor->dims[0];
  if (tensor->dim_count != 2 || tensor->dims[1] != model_.heads * head_rows) {
    return WrongShape(source, absl::StrCat(model_.heads * head_rows, " rows"));
  }
  const std::byte* const from = tensor->data;
  const int64_t row_bytes = static_cast<int64_t>(tensor->row_bytes());
  tensor->dim_count = 3;
  if (take == Take::kMlaValues) {
    tensor->dims = {columns, model_.value_dim, model_.heads, 1};
    tensor->bytes = tensor->row_bytes() * tensor->rows();
    for (int64_t head = 0; head < model_.heads; ++head) {
      tensor->slabs.push_back(from + (head * head_rows + model_.key_dim) * row_bytes);
    }
    tensor->file_offset += model_.key_dim * row_bytes;
    tensor->data = tensor->slabs[0];
    return absl::OkStatus();
  }
  tensor->dims = {model_.key_dim, columns, model_.heads, 1};
  const int64_t size = TypeInfo(tensor->type).block_bytes;
  std::byte* to = OwnData(tensor);
  for (int64_t head = 0; head < model_.heads; ++head) {
    for (int64_t row = 0; row < model_.key_dim; ++row) {
      const std::byte* const source_row = from + (head * head_rows + row) * row_bytes;
      for (int64_t i = 0; i < columns; ++i) {
        std::memcpy(to + (i * model_.key_dim + row) * size, source_row + i * size, size);
      }
    }
    to += model_.key_dim * columns * size;
  }
  return absl::OkStatus();
}

void TensorTaker::MakeFloat(GgufTensor* tensor) {
  CHECK(tensor->slabs.empty());
  const int64_t size = tensor->elements();
  std::vector<float> values(size);
  Dequantize(tensor->type, tensor->data, absl::MakeSpan(values));
  // The norm inside a delta net multiplies by its weight in every family.
  const bool plus_one = model_.family->norm_plus_one &&
                        absl::EndsWith(tensor->name, "norm.weight") &&
                        !absl::EndsWith(tensor->name, "ssm_norm.weight");
  tensor->type = GgmlType::kF32;
  std::byte* const to = OwnData(tensor);
  for (int64_t i = 0; i < size; ++i) {
    int64_t from = i;
    if (tensor->head_rows > 0) {
      const int64_t within = i % tensor->head_rows;
      from += within / 2 + within % 2 * (tensor->head_rows / 2) - within;
    }
    const float value = values[from] + (plus_one ? 1 : 0);
    std::memcpy(to + i * sizeof(float), &value, sizeof(float));
  }
  tensor->head_rows = 0;
}

}  // namespace tidepool::engine::hf
