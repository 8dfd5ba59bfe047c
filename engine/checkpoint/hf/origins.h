// Says how a Hugging Face directory names the tensors and keys that a Checkpoint has in GGUF's
// form. Error messages use these names.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_ORIGINS_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_ORIGINS_H_

#include <cstdint>
#include <string>

#include "engine/checkpoint/file_names.h"
#include "engine/checkpoint/hf/families.h"
#include "engine/checkpoint/hf/tensor_rules.h"
#include "engine/checkpoint/hf/tensors.h"

namespace tidepool::engine::hf {

// Describes the stored tensor from which a rule makes a tensor.
TensorOrigin OriginOf(Take take, const TensorSource& source);

// Describes the stored tensors of a layer's experts. `source` is the stored tensor of `expert`.
TensorOrigin OriginOfExperts(const TensorSource& source, int64_t expert);

// Adds the keys of config.json from which ReadConfig makes metadata. `path` is the path of
// config.json.
void AddConfigKeys(const std::string& path, const HfModel& model, FileNames* names);

// Adds the parts of the tokenizer file (tokenizer.json or tokenizer.model) from which metadata are
// made.
void AddTokenizerKeys(const std::string& path, FileNames* names);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_ORIGINS_H_
