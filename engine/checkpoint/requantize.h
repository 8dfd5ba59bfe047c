// Requantize: converts a checkpoint to a GGUF file with other weight types.
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
  // Type of the output head, or of a tied embedding. Unset: DefaultHeadType(type).
  std::optional<GgmlType> head_type;
  int threads = 1;
  base::ExistingFile existing = base::ExistingFile::kRefuse;
  // Called with the current tensor and the increasing fraction of bytes read. An error stops the
  // work. May be empty.
  std::function<absl::Status(absl::string_view tensor, double fraction)> progress;
};

enum class TensorFate : uint8_t {
  kKept,  // unchanged: a norm, a router, not a matrix, or already of the requested type
  kConverted,
  kFallback,  // converted to another type: rows are not a multiple of the requested type's block
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

// Q6_K for types with fewer bits, since errors of the head directly change the logits. Otherwise
// `type`.
GgmlType DefaultHeadType(GgmlType type);

// The value of general.file_type for a file whose matrices are mostly of `type`, with llama.cpp's
// numbers. Requires: CanQuantize(type).
uint32_t FileTypeNumber(GgmlType type);

// Chooses the type of each tensor. Matrices named "...weight" get the requested type. Norms,
// routers, biases and other one-dimensional tensors stay unchanged. If rows are not a multiple of
// 256, Q4_K becomes Q5_0, Q5_K becomes Q5_1 and Q6_K becomes Q8_0. If they are not a multiple of
// 32, they become F16.
std::vector<TensorChoice> ChooseTypes(const Checkpoint& file, const RequantizeOptions& options);

// Writes `file` to `path` with the same metadata, except for general.file_type,
// general.quantization_version and split.*. Uses a few MiB of memory per thread, whatever the size
// of the model. Equal input gives equal bytes with any number of threads. Errors: INVALID_ARGUMENT,
// which names tensor and row if possible (CanQuantize is false for a type; a tensor's type cannot
// be read; it has a NaN, an infinity, or a number outside the range of its new type); those of
// GgufFileWriter::Create and of `progress`.
absl::StatusOr<RequantizeReport> Requantize(const Checkpoint& file, const std::string& path,
                                            const RequantizeOptions& options);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_REQUANTIZE_H_
