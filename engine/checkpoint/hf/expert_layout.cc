#include "engine/checkpoint/hf/expert_layout.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engine/checkpoint/hf/json_file.h"

namespace tidepool::engine::hf {
namespace {

constexpr absl::string_view kGateUp = "gate_up_proj";
constexpr absl::string_view kDown = "down_proj";

// The shapes that a tensor may have.
struct Shapes {
  std::vector<int64_t> rows;        // [experts, outputs, inputs]
  std::vector<int64_t> transposed;  // [experts, inputs, outputs]
};

Shapes ShapesOf(const HfModel& model, const TensorSource& source) {
  int64_t outputs = 2 * model.experts.width;
  int64_t inputs = model.experts.hidden;
  if (!absl::EndsWith(source.tensor->name, kGateUp)) {
    outputs = model.experts.hidden;
    inputs = model.experts.width;
  }
  return {{model.experts.count, outputs, inputs}, {model.experts.count, inputs, outputs}};
}

Take Transposed(Take take) {
  if (take == Take::kFirstRows) return Take::kTransposedFirst;
  if (take == Take::kSecondRows) return Take::kTransposedSecond;
  return Take::kTransposed;
}

std::string Text(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

std::string OtherExpertTensor(absl::string_view name) {
  if (absl::ConsumeSuffix(&name, kGateUp)) return absl::StrCat(name, kDown);
  return absl::StrCat(absl::StripSuffix(name, kDown), kGateUp);
}

absl::StatusOr<Take> TakeInItsLayout(const HfModel& model, const TensorRule& rule,
                                     const TensorSource& source, const TensorSource& other) {
  const std::vector<int64_t>& shape = source.tensor->shape;
  const Shapes shapes = ShapesOf(model, source);
  if (shape != shapes.rows) {
    if (shape == shapes.transposed) return Transposed(rule.take);
    return FileError(source.path, source.tensor->name,
                     absl::StrCat("shape ", Text(shape), ", expected ", Text(shapes.transposed),
                                  " or ", Text(shapes.rows)));
  }
  const std::vector<int64_t> other_rows = ShapesOf(model, other).rows;
  if (shape != shapes.transposed || other.tensor->shape == other_rows) return rule.take;
  return FileUnsupported(
      source.path, source.tensor->name,
      absl::StrCat("shape ", Text(shape),
                   " does not tell whether the matrices are transposed, and ", other.tensor->name,
                   " has the shape ", Text(other.tensor->shape), ", expected ", Text(other_rows),
                   "; store both tensors as [experts, outputs, inputs]"));
}

}  // namespace tidepool::engine::hf
