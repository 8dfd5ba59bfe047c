#include "engine/checkpoint/requantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/dequantize.h"
#include "engine/checkpoint/quantize.h"
#include "engine/checkpoint/token_type.h"
#include "kernels/base/atomic_min.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_pool.h"

namespace tidepool::engine {
namespace {

// Number of bytes, as float32, of the rows that are converted at a time.
constexpr int64_t kChunkBytes = 16 << 20;
constexpr int64_t kNoBadRow = std::numeric_limits<int64_t>::max();

double BitsPerElement(GgmlType type) {
  return 8.0 * TypeInfo(type).block_bytes / TypeInfo(type).block_elements;
}

// Returns whether the tensor is a router, or one of the small projections of a delta net. Rounding
// them has a large effect. A rounded router chooses other experts, and a rounded decay of a delta
// net (ssm_alpha) changes what its state keeps. If such a tensor has a type of 16 bits, llama.cpp
// rounds its inputs to this type. So it is written as F32.
bool IsSensitive(const GgufTensor& tensor) {
  const absl::string_view parts[] = {"ffn_gate_inp", "ssm_alpha.", "ssm_beta.", "ssm_ba."};
  return std::any_of(std::begin(parts), std::end(parts),
                     [&](absl::string_view part) { return absl::StrContains(tensor.name, part); });
}

// Returns whether the tensor should get the requested type.
bool IsMatrixOfWeights(const GgufTensor& tensor) {
  if (tensor.dim_count < 2 || tensor.rows() == 1) return false;
  if (!absl::EndsWith(tensor.name, ".weight")) return false;
  if (IsSensitive(tensor)) return false;
  // The types of these tensors do not change. They are small, and rounding has a large effect.
  for (absl::string_view part : {"_norm.", "ssm_conv1d", "shortconv.conv", "rope_"}) {
    if (absl::StrContains(tensor.name, part)) return false;
  }
  return true;
}

GgmlType FittingType(GgmlType wanted, int64_t columns) {
  const auto divides = [&](GgmlType type) { return columns % TypeInfo(type).block_elements == 0; };
  if (divides(wanted)) return wanted;
  const GgmlType smaller_blocks = wanted == GgmlType::kQ4_K   ? GgmlType::kQ5_0
                                  : wanted == GgmlType::kQ5_K ? GgmlType::kQ5_1
                                                              : GgmlType::kQ8_0;
  return divides(smaller_blocks) ? smaller_blocks : GgmlType::kF16;
}

// Checkpoints pad the embedding, and llama.cpp requires a token for each of its rows. So this
// function adds an unused token for each row without a token.
void PadTokens(const Checkpoint& file, GgufMetadata* metadata) {
  constexpr absl::string_view kTokens = "tokenizer.ggml.tokens";
  constexpr absl::string_view kTypes = "tokenizer.ggml.token_type";
  constexpr absl::string_view kScores = "tokenizer.ggml.scores";
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  const auto known = file.Strings(kTokens);
  if (embedding == nullptr || !known.ok()) return;
  std::vector<std::string> tokens(known->begin(), known->end());
  for (int64_t id = known->size(); id < embedding->dims[1]; ++id) {
    tokens.push_back(PlaceholderToken(id));
  }
  if (tokens.size() == known->size()) return;
  metadata->SetStrings(kTokens, tokens);
  if (const auto kinds = file.Ints(kTypes); kinds.ok()) {
    std::vector<int32_t> types(kinds->begin(), kinds->end());
    types.resize(tokens.size(), static_cast<int32_t>(TokenType::kUnused));
    metadata->SetI32s(kTypes, types);
  }
  if (auto scores = file.Floats(kScores); scores.ok()) {
    scores->resize(tokens.size(), 0);
    metadata->SetF32s(kScores, *scores);
  }
}

GgufMetadata MetadataFor(const Checkpoint& file, GgmlType type) {
  GgufMetadata metadata;
  for (const GgufEntry& entry : file.metadata()) {
    if (!absl::StartsWith(entry.key, "split.")) metadata.Copy(entry);
  }
  PadTokens(file, &metadata);
  metadata.SetU32("general.file_type", FileTypeNumber(type));
  metadata.SetU32("general.quantization_version", 2);
  return metadata;
}

// Thread-safe. Checks and converts rows of one tensor.
class RowConverter {
 public:
  RowConverter(const GgufTensor& tensor, GgmlType to)
      : tensor_(tensor),
        from_(tensor.type),
        to_(to),
        columns_(tensor.dims[0]),
        row_bytes_(static_cast<int64_t>(tensor.row_bytes())),
        out_row_bytes_(columns_ / TypeInfo(to).block_elements * TypeInfo(to).block_bytes),
        largest_(from_ == to ? std::numeric_limits<float>::max() : LargestQuantizable(to)) {}

  int64_t out_row_bytes() const { return out_row_bytes_; }
  // The first row that cannot be represented, or kNoBadRow.
  int64_t bad_row() const { return bad_row_.load(std::memory_order_relaxed); }

  void Convert(int64_t first, int64_t count, std::byte* out) {
    constexpr int64_t kRowsAtOnce = 32;
    std::vector<std::byte> rows(std::min(count, kRowsAtOnce) * row_bytes_);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = i % kRowsAtOnce;
      if (at == 0) tensor_.CopyRows(first + i, std::min(count - i, kRowsAtOnce), rows.data());
      ConvertRow(first + i, rows.data() + at * row_bytes_, out + i * out_row_bytes_);
    }
  }

 private:
  void ConvertRow(int64_t row, const std::byte* from, std::byte* out) {
    std::vector<float> values(columns_);
    Dequantize(from_, from, absl::MakeSpan(values));
    // This comparison is also false for a NaN.
    const bool fits = std::all_of(values.begin(), values.end(),
                                  [&](float value) { return std::abs(value) <= largest_; });
    if (!fits) {
      base::LowerTo(&bad_row_, row);
    } else if (from_ == to_) {
      std::copy_n(from, row_bytes_, out);
    } else {
      Quantize(to_, values, out);
    }
  }

  const GgufTensor& tensor_;
  const GgmlType from_;
  const GgmlType to_;
  const int64_t columns_;
  const int64_t row_bytes_;
  const int64_t out_row_bytes_;
  const float largest_;
  std::atomic<int64_t> bad_row_{kNoBadRow};
};

absl::Status BadRow(const Checkpoint& file, const GgufTensor& tensor, int64_t row, GgmlType to) {
  std::vector<std::byte> bytes(tensor.row_bytes());
  tensor.CopyRows(row, 1, bytes.data());
  std::vector<float> values(tensor.dims[0]);
  Dequantize(tensor.type, bytes.data(), absl::MakeSpan(values));
  for (const float value : values) {
    if (std::isfinite(value)) continue;
    return file.RowError(tensor, row, "has a NaN or an infinity, expected finite numbers");
  }
  return file.RowError(tensor, row,
                       absl::StrCat("has numbers above ", LargestQuantizable(to),
                                    ", the maximum of ", GgmlTypeName(to), "; use BF16 or F32"));
}

struct Conversion {
  const Checkpoint& file;
  base::ThreadPool* pool;
  GgufFileWriter* writer;
};

// Writes one tensor. `progress` is called with the number of bytes of the tensor that were read so
// far.
absl::Status WriteTensor(const Conversion& conversion, const GgufTensor& tensor, GgmlType to,
                         const std::function<absl::Status(uint64_t tensor_bytes)>& progress) {
  const auto& [file, pool, writer] = conversion;
  RowConverter converter(tensor, to);
  const int64_t row_floats = tensor.dims[0] * static_cast<int64_t>(sizeof(float));
  const int64_t chunk = std::max<int64_t>(1, kChunkBytes / row_floats);
  const int64_t grain = std::max<int64_t>(1, chunk / (8 * pool->threads()));
  std::vector<std::byte> out(std::min(chunk, tensor.rows()) * converter.out_row_bytes());
  for (int64_t first = 0; first < tensor.rows(); first += chunk) {
    RETURN_IF_ERROR(progress(first * tensor.row_bytes()));
    const int64_t rows = std::min(chunk, tensor.rows() - first);
    pool->ParallelFor(rows, grain, [&](int64_t begin, int64_t end, int) {
      converter.Convert(first + begin, end - begin, out.data() + begin * converter.out_row_bytes());
    });
    if (converter.bad_row() != kNoBadRow) return BadRow(file, tensor, converter.bad_row(), to);
    RETURN_IF_ERROR(
        writer->Append(absl::MakeConstSpan(out.data(), rows * converter.out_row_bytes())));
    file.DropRows(tensor, first, rows);
  }
  return absl::OkStatus();
}

absl::Status CheckReadable(const Checkpoint& file) {
  for (const GgufTensor& tensor : file.tensors()) {
    if (CanDequantize(tensor.type)) continue;
    return file.Error(tensor.name, absl::StrCat("type ", GgmlTypeName(tensor.type),
                                                " cannot be read, expected a float type, Q4_0 to "
                                                "Q8_0, a K-quant, IQ4, MXFP4 or NVFP4"));
  }
  return absl::OkStatus();
}

}  // namespace

GgmlType DefaultHeadType(GgmlType type) {
  return BitsPerElement(type) < BitsPerElement(GgmlType::kQ6_K) ? GgmlType::kQ6_K : type;
}

uint32_t FileTypeNumber(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return 0;
    case GgmlType::kF16:
      return 1;
    case GgmlType::kQ4_0:
      return 2;
    case GgmlType::kQ4_1:
      return 3;
    case GgmlType::kQ8_0:
      return 7;
    case GgmlType::kQ5_0:
      return 8;
    case GgmlType::kQ5_1:
      return 9;
    case GgmlType::kQ4_K:
      return 14;
    case GgmlType::kQ5_K:
      return 16;
    case GgmlType::kQ6_K:
      return 18;
    case GgmlType::kIQ4_NL:
      return 25;
    case GgmlType::kBF16:
      return 32;
    default:
      return 38;  // the number for MXFP4
  }
}

std::vector<TensorChoice> ChooseTypes(const Checkpoint& file, const RequantizeOptions& options) {
  const absl::string_view head =
      file.FindTensor("output.weight") != nullptr ? "output.weight" : "token_embd.weight";
  std::vector<TensorChoice> choices;
  for (const GgufTensor& tensor : file.tensors()) {
    TensorChoice& choice = choices.emplace_back();
    choice.name = std::string(tensor.name);
    choice.from = choice.to = tensor.type;
    if (IsSensitive(tensor) && TypeInfo(tensor.type).block_elements == 1)
      choice.to = GgmlType::kF32;
    if (!IsMatrixOfWeights(tensor)) continue;
    const GgmlType wanted = tensor.name == head
                                ? options.head_type.value_or(DefaultHeadType(options.type))
                                : options.type;
    choice.to = FittingType(wanted, tensor.dims[0]);
    if (choice.to != wanted) {
      choice.fate = TensorFate::kFallback;
    } else if (choice.to != choice.from) {
      choice.fate = TensorFate::kConverted;
    }
  }
  return choices;
}

absl::StatusOr<RequantizeReport> Requantize(const Checkpoint& file, const std::string& path,
                                            const RequantizeOptions& options) {
  for (const GgmlType type : {options.type, options.head_type.value_or(options.type)}) {
    if (CanQuantize(type)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("weights of type ", GgmlTypeName(type), " cannot be written"));
  }
  RETURN_IF_ERROR(CheckReadable(file));
  RequantizeReport report;
  report.tensors = ChooseTypes(file, options);
  std::vector<GgufTensorPlan> plans;
  for (size_t i = 0; i < report.tensors.size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    plans.push_back({report.tensors[i].name, report.tensors[i].to, tensor.dim_count, tensor.dims});
    report.bytes_in += tensor.bytes;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFileWriter> writer,
                   GgufFileWriter::Create(path, MetadataFor(file, options.type), std::move(plans),
                                          options.existing));
  base::ThreadPool pool(options.threads);
  uint64_t before = 0;
  for (size_t i = 0; i < report.tensors.size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    const auto progress = [&](uint64_t tensor_bytes) {
      if (!options.progress) return absl::OkStatus();
      return options.progress(tensor.name, static_cast<double>(before + tensor_bytes) /
                                               static_cast<double>(report.bytes_in));
    };
    RETURN_IF_ERROR(
        WriteTensor({file, &pool, writer.get()}, tensor, report.tensors[i].to, progress));
    before += tensor.bytes;
  }
  RETURN_IF_ERROR(writer->Finish());
  report.bytes_out = writer->file_bytes();
  report.bytes_in = file.file_bytes();
  return report;
}

}  // namespace tidepool::engine
