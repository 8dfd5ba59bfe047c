// Reads the steps that a tokenizer.json runs before and after its model: normalisers,
// pre-tokenizers and post-processors.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_STEPS_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_STEPS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/hf/json_file.h"

namespace tidepool::engine::hf {

// Returns the steps in order. A step of type "Sequence" is replaced by its members. If `step` is
// null, there are no steps. Returns INVALID_ARGUMENT if a step is not an object with a type. `key`,
// for example "normalizer", names the steps in error messages. The returned pointers point into
// `step`.
absl::StatusOr<std::vector<const Json*>> Flatten(const std::string& path, absl::string_view key,
                                                 const Json* step);

// Returns the type of a step from Flatten.
absl::string_view TypeOfStep(const Json& step);

// Returns the value of tokenizer.ggml.pre for the steps of a byte-level pre-tokenizer. Returns
// UNIMPLEMENTED if the steps are unknown.
absl::StatusOr<std::string> FindPreTokenizer(const std::string& path,
                                             const std::vector<const Json*>& steps,
                                             bool ignore_merges);

// How to handle spaces in a tokenizer that writes a space as "▁".
struct SpaceRules {
  enum class Prefix {
    kNever,
    kFirst,   // add a space before a text that does not begin with a special token
    kAlways,  // also add a space after every special token
  };
  Prefix prefix = Prefix::kNever;
  bool split = false;  // merges do not cross the start of a word
  bool once = false;   // add no prefix if the text begins with a space
  std::string form;    // Unicode normalisation: "nfc" or "nfkc"; empty if there is none
};

// Returns UNIMPLEMENTED if the rules cannot express a step.
absl::StatusOr<SpaceRules> ReadSpaceRules(const std::string& path,
                                          const std::vector<const Json*>& normalizers,
                                          const std::vector<const Json*>& pre_tokenizers);

// The tokens that a post-processor adds before and after a text.
struct AddedAround {
  std::optional<std::string> before;
  std::optional<std::string> after;
};

// Returns UNIMPLEMENTED if the processor adds more than one token on a side, or is unknown.
absl::StatusOr<AddedAround> ReadPostProcessor(const std::string& path, const Json* processor);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_STEPS_H_
