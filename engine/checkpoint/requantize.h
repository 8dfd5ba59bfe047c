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
  // Type of the output head, or of the embedding if that is also the head. Default:
  // DefaultHeadType(type).
  std::optional<GgmlType> head_type;
  int threads = 1;
  base::ExistingFile existing = base::ExistingFile::kRefuse;
  // Called with the current tensor, and with the fraction of bytes read so far. If it returns an
  // error, Requantize stops with that error. May be empty.
  std::function<absl::Status(absl::string_view tensor, double fraction)> progress;
};

enum class TensorFate : uint8_t {
  // a norm, another tensor that is not a matrix, a router, or a matrix that already has the
  // requested type
  kKept,
  kConverted,
  // converted to another type, because rows are not a multiple of the requested type's block size
  kFallback,
};

struct TensorChoice {
  std::string name;
  GgmlType from = GgmlType::kF32;
  GgmlType to = GgmlType::kF32;
  TensorFate fate = TensorFate::kKept;
};

struct RequantizeReport {
  std::vector<TensorChoice> tensors;  // in the order of the file
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
};

// The type of the output head if matrices have `type`. It is Q6_K if `type` has fewer bits, because
// errors in the head directly change the logits. Otherwise it is `type`.
GgmlType DefaultHeadType(GgmlType type);

// The value of general.file_type for a file in which most matrices have `type`. The numbers are
// llama.cpp's. Requires: CanQuantize(type).
uint32_t FileTypeNumber(GgmlType type);

// Chooses the type of each tensor. Matrices named "...weight" get the requested type. Norms, biases
// and other one-dimensional tensors stay unchanged. Routers and the small projections of delta nets
// (ssm_alpha, ssm_beta, ssm_ba) become F32 if they have 16 bits. If the row length is not a
// multiple of 256, Q4_K becomes Q5_0, Q5_K becomes Q5_1 and Q6_K becomes Q8_0. If it is not a
// multiple of 32, the type becomes F16.
std::vector<TensorChoice> ChooseTypes(const Checkpoint& file, const RequantizeOptions& options);

// Writes `file` to `path` with the same metadata, except for general.file_type,
// general.quantization_version and split.*. Uses a few MiB of memory per thread; this does not
// depend on the size of the model. The number of threads does not change the output bytes. Returns
// the errors of GgufFileWriter::Create and of `progress`. Returns INVALID_ARGUMENT, with the tensor
// and the row if possible, in these cases: CanQuantize is false for a type; a tensor's type cannot
// be read; a tensor has a NaN, an infinity, or a number outside the range of its new type.
absl::StatusOr<RequantizeReport> Requantize(const Checkpoint& file, const std::string& path,
                                            const RequantizeOptions& options);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_REQUANTIZE_H_
