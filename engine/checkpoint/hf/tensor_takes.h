// Makes GGUF tensors from the tensors of a Hugging Face checkpoint. Implementation detail of
// tensors.cc.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSOR_TAKES_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSOR_TAKES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/hf/families.h"
#include "engine/checkpoint/hf/tensor_rules.h"
#include "engine/checkpoint/hf/tensors.h"

namespace tidepool::engine::hf {

// Thread-compatible. A tensor whose bytes need no conversion points into its file. The other
// tensors point into `owned`, which must outlive them.
class TensorTaker {
 public:
  TensorTaker(const HfModel& model, std::vector<std::unique_ptr<std::byte[]>>* owned)
      : model_(model), owned_(*owned) {}

  // Makes the GGUF tensor that a rule describes. `scales` is the source of the scales if `source`
  // has blocks of MXFP4, otherwise null. Returns INVALID_ARGUMENT with the file and the tensor if
  // the shape does not fit the rule, and UNIMPLEMENTED if the type is not supported.
  absl::StatusOr<GgufTensor> Make(const std::string& name, const TensorRule& rule,
                                  const TensorSource& source, const TensorSource* scales);

  // Describes the source in its stored form, under the name `name`.
  absl::StatusOr<GgufTensor> Describe(absl::string_view name, const TensorSource& source);

  GgufTensor Floats(absl::string_view name, absl::Span<const float> values);

 private:
  std::byte* Own(size_t bytes);
  // Returns a copy of the name that lives as long as the tensors.
  absl::string_view OwnName(absl::string_view name);
  // Sets the tensor's data to new owned memory, with the size for its type and dimensions.
  std::byte* OwnData(GgufTensor* tensor);
  absl::Status SetRotary(const TensorSource& source, GgufTensor* tensor) const;
  absl::Status HalveRows(Take take, const TensorSource& source, GgufTensor* tensor) const;
  absl::Status SplitRows(Take take, const TensorSource& source, GgufTensor* tensor);
  absl::Status Transpose(Take take, const TensorSource& source, GgufTensor* tensor) const;
  absl::Status PackMxfp4(Take take, const TensorSource& blocks, const TensorSource* scales,
                         GgufTensor* tensor);
  absl::Status SplitMla(Take take, const TensorSource& source, GgufTensor* tensor);
  absl::Status TakeDelta(Take take, const TensorSource& source, GgufTensor* tensor);
  // Replaces the tensor by a tensor that consists of these runs of its rows.
  struct Run {
    int64_t first = 0;
    int64_t rows = 0;
  };
  static void TakeRuns(const std::vector<Run>& runs, GgufTensor* tensor);
  absl::Status TakeDeltaRows(Take take, const TensorSource& source, GgufTensor* tensor);
  absl::Status TakeFusedDelta(Take take, const TensorSource& source, GgufTensor* tensor);
  absl::Status TakeColumns(const TensorSource& source, GgufTensor* tensor);
  absl::Status TakeConv(Take take, const TensorSource& source, GgufTensor* tensor);
  absl::Status TakeDeltaVector(Take take, const TensorSource& source, GgufTensor* tensor);
  // Replaces the tensor's data by floats in owned memory.
  void SetFloats(absl::Span<const float> values, GgufTensor* tensor);
  // Allows the kernel to reclaim the pages of a source that was copied, so that the source does not
  // take memory in addition to the copy. The contents of the pages do not change.
  static void Release(const std::byte* data, size_t bytes);
  // Returns the error for a shape that does not fit the rule.
  static absl::Status WrongShape(const TensorSource& source, absl::string_view expected);
  // Converts the tensor to float32 in owned memory. Interleaves its rows if head_rows is not 0.
  void MakeFloat(GgufTensor* tensor);

  const HfModel& model_;
  std::vector<std::unique_ptr<std::byte[]>>& owned_;
};

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSOR_TAKES_H_
