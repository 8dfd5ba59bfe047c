// Rules that say which GGUF tensors are made from which tensors of a Hugging Face checkpoint.
// Implementation detail of tensors.cc.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSOR_RULES_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSOR_RULES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/checkpoint/hf/families.h"

namespace tidepool::engine::hf {

// Which elements a GGUF tensor takes from its source tensor.
enum class Take : uint8_t {
  kAll,
  kRotary,          // all rows; in families with rotary_pairs, they are interleaved
  kFirstRows,       // the first half of the rows of each matrix
  kSecondRows,      // the second half of the rows of each matrix
  kVector,          // all elements as one vector
  kEvenOfRows,      // the elements 0, 2, 4, ... of each row
  kOddOfRows,       // the elements 1, 3, 5, ... of each row
  kTransposed,      // the transpose of each matrix
  kTransposedEven,  // the rows 0, 2, 4, ... of the transpose of each matrix
  kTransposedOdd,
  kMxfp4,      // all rows of "NAME_blocks", with the scales in "NAME_scales"
  kMxfp4Even,  // the rows 0, 2, 4, ... of "NAME_blocks"
  kMxfp4Odd,
  kMxfp4Scales,  // nothing, because the rule for "NAME_blocks" reads the scales
  kMlaKeys,      // for each head, the transpose of its first key_dim rows
  kMlaValues,    // for each head, the value_dim rows that follow its keys
};

struct TensorRule {
  absl::string_view hf;        // "#" represents the index of an expert
  absl::string_view gguf;      // the name without "blk.N."
  Parts in = {Part::kAlways};  // a model with any of these parts has the tensor
  Take take = Take::kAll;
};

// Rules for the tensors of a layer, "model.layers.N.*". Several rules may have the same source. If
// two rules of one part have the same GGUF name, they name two possible sources.
absl::Span<const TensorRule> LayerRules();

// Rules for all other tensors.
absl::Span<const TensorRule> OuterRules();

// Returns whether a layer has the rule's tensor. `sparse` is true if the layer's FFN is a mixture
// of experts.
bool Applies(const TensorRule& rule, Parts model_parts, bool sparse);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSOR_RULES_H_
