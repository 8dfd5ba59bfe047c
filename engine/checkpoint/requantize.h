// Requantize: a checkpoint as a GGUF file of other weight types.
//
//   ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open("model.gguf"));
//   ASSIGN_OR_RETURN(const RequantizeReport report,
//                    Requantize(file, "out.gguf", {.type = GgmlType::kQ4_K}));
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_REQUANTIZE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_REQUANTIZE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/ggml_type.h"
#include "engine/checkpoint/gguf_file_writer.h"

namespace tidepool::engine {

struct RequantizeOptions {
  GgmlType type = GgmlType::kQ8_0;
  // Of the output head, or of the embedding where it is the head too; unset: DefaultHeadType(type).
  std::optional<GgmlType> head_type;
  int threads = 1;
  base::ExistingFile existing = base::ExistingFile::kRefuse;
  // Called with the tensor at hand and the rising fraction of bytes read; an error ends the work.
  // May be empty.
  std::function<absl::Status(absl::string_view tensor, double fraction)> progress;
};

enum class TensorFate : uint8_t {
  kKept,  // as it was: not a matrix, a norm, a router, or of the type wanted already
  kConverted,
  kFallback,  // the type wanted has blocks that do not divide its rows: converted to another
};

struct TensorChoice {
  std::string name;
  GgmlType from = GgmlType::kF32;
  GgmlType to = GgmlType::kF32;
  TensorFate fate = TensorFate::kKept;
};

struct RequantizeReport {
  std::vector<TensorChoice> tensors;  // in file order
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
};

// Q6_K for types of fewer bits, since errors of the head reach the logits undamped; else `type`.
GgmlType DefaultHeadType(GgmlType type);

// general.file_type of a file whose matrices are mostly of a type that CanQuantize accepts:
// llama.cpp's numbers.
uint32_t FileTypeNumber(GgmlType type);

// What becomes of each tensor: matrices named "...weight" take the type wanted; norms, routers,
// biases and everything else of one dimension stay. Where rows are no multiple of 256, Q4_K becomes
// Q5_0, Q5_K becomes Q5_1 and Q6_K becomes Q8_0; where they are no multiple of 32, F16.
std::vector<TensorChoice> ChooseTypes(const Checkpoint& file, const RequantizeOptions& options);

// Writes `file` to `path`, metadata kept but for general.file_type, general.quantization_version
// and split.*. Takes some MiB of memory for each thread, whatever the size of the model. Equal
// input gives equal bytes, whatever the threads. Errors: INVALID_ARGUMENT (CanQuantize denies a
// type; a tensor's type cannot be read, or it holds a NaN, an infinity, or a number past the range
// of its new type: the message names tensor and row), GgufFileWriter::Create's, and those of
// `progress`.
absl::StatusOr<RequantizeReport> Requantize(const Checkpoint& file, const std::string& path,
                                            const RequantizeOptions& options);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_REQUANTIZE_H_
