// Which GGUF tensors come from which tensors of a Hugging Face checkpoint. Implementation detail of
// tensors.cc.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSOR_RULES_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSOR_RULES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/checkpoint/hf/families.h"

namespace tidepool::engine::hf {

// What a GGUF tensor takes from its source.
enum class Take : uint8_t {
  kAll,
  kRotary,          // all rows, interleaved in families with rotary_pairs
  kFirstRows,       // the first half of the rows of each matrix
  kSecondRows,      // the second half
  kVector,          // all elements as one vector
  kEvenOfRows,      // the elements 0, 2, 4, ... of each row
  kOddOfRows,       // the elements 1, 3, 5, ...
  kTransposed,      // the transpose of each matrix
  kTransposedEven,  // the rows 0, 2, 4, ... of the transpose of each matrix
  kTransposedOdd,
  kMxfp4,      // all rows of "NAME_blocks", with the scales in "NAME_scales"
  kMxfp4Even,  // the rows 0, 2, 4, ...
  kMxfp4Odd,
  kMxfp4Scales,  // nothing: the rule for "NAME_blocks" takes it
  kMlaKeys,      // for each head, the transpose of its first key_dim rows
  kMlaValues,    // for each head, the value_dim rows after them
};

struct TensorRule {
  absl::string_view hf;        // "#" is the index of an expert
  absl::string_view gguf;      // the name without "blk.N."
  Parts in = {Part::kAlways};  // a model with any of these parts has the tensor
  Take take = Take::kAll;
};

// Rules for the tensors of a layer, "model.layers.N.*". One source may have several rules. If two
// rules of one part have the same GGUF name, the source has two names.
absl::Span<const TensorRule> LayerRules();

// Rules for all other tensors.
absl::Span<const TensorRule> OuterRules();

// Whether a layer has the tensor. `sparse`: its FFN is a mixture of experts.
bool Applies(const TensorRule& rule, Parts model_parts, bool sparse);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSOR_RULES_H_
