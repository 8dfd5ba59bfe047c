// The steps of a tokenizer.json before and after its model: normalisers, pre-tokenizers,
// post-processors.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_STEPS_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_STEPS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/hf/json_file.h"

namespace tidepool::engine::hf {

// Steps in order: a "Sequence" is taken apart, null is none. INVALID_ARGUMENT: a step that is not
// an object with a type. `key` names them in messages: "normalizer". The steps are views into
// `step`.
absl::StatusOr<std::vector<const Json*>> Flatten(const std::string& path, absl::string_view key,
                                                 const Json* step);

// The type of a step that Flatten returned.
absl::string_view TypeOfStep(const Json& step);

// The name in tokenizer.ggml.pre of byte-level pre-tokenizing steps. UNIMPLEMENTED: not known.
absl::StatusOr<std::string> FindPreTokenizer(const std::string& path,
                                             const std::vector<const Json*>& steps,
                                             bool ignore_merges);

// How a tokenizer that writes a space as "▁" treats spaces.
struct SpaceRules {
  enum class Prefix {
    kNever,
    kFirst,   // a space goes before a text that does not begin with a special token
    kAlways,  // and after every special token
  };
  Prefix prefix = Prefix::kNever;
  bool split = false;  // merges do not cross the beginning of a word
  bool once = false;   // no prefix before text that begins with a space
  std::string form;    // of Unicode: "nfc", "nfkc", or none
};

// UNIMPLEMENTED: a step that does something else.
absl::StatusOr<SpaceRules> ReadSpaceRules(const std::string& path,
                                          const std::vector<const Json*>& normalizers,
                                          const std::vector<const Json*>& pre_tokenizers);

// What a post-processor puts around a text.
struct AddedAround {
  std::optional<std::string> before;
  std::optional<std::string> after;
};

// UNIMPLEMENTED: more than one token on a side, or a processor that is not known.
absl::StatusOr<AddedAround> ReadPostProcessor(const std::string& path, const Json* processor);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_STEPS_H_
