// The metadata of a synthetic model: the keys of its architecture, and a small tokenizer.
#ifndef TIDEPOOL_TOOLS_SYNTHETIC_METADATA_H_
#define TIDEPOOL_TOOLS_SYNTHETIC_METADATA_H_

#include <cstdint>

#include "engine/checkpoint/gguf_file_writer.h"
#include "tools/synthetic/shape.h"

namespace tidepool::tools {

// The tokenizer is byte-level BPE with a few dozen merges and ChatML. Unused tokens fill the
// vocabulary up to the shape's size.
engine::GgufMetadata MakeMetadata(const Shape& shape);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_SYNTHETIC_METADATA_H_
