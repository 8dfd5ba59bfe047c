// Rewrites a GGUF file for a test: the same model with changes.
#ifndef TIDEPOOL_TESTS_ENGINE_MODEL_GGUF_EDIT_H_
#define TIDEPOOL_TESTS_ENGINE_MODEL_GGUF_EDIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/gguf.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {

struct EditableTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<uint64_t> dims;  // fastest first
  std::string data;
};

// Thread-compatible. Omits the tokenizer's metadata.
class GgufEdit {
 public:
  // Ends the process if the file cannot be read.
  explicit GgufEdit(const std::string& path);

  GgufWriter& metadata() { return metadata_; }
  const std::vector<EditableTensor>& tensors() const { return tensors_; }

  // Returns the tensor. Ends the process if there is none.
  EditableTensor& at(const std::string& name);
  // Removes the tensor and returns it.
  EditableTensor Take(const std::string& name);
  void Add(EditableTensor tensor) { tensors_.push_back(std::move(tensor)); }

  // Writes the file under the test's temporary folder and returns its path.
  std::string Write(const std::string& name) const;

 private:
  GgufWriter metadata_;
  std::vector<EditableTensor> tensors_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_TESTS_ENGINE_MODEL_GGUF_EDIT_H_
