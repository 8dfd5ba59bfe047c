// Builds GGUF files in memory for tests. They are valid unless a test makes them invalid.
//
//   GgufWriter writer;
//   writer.String("general.architecture", "llama").U32("llama.block_count", 2);
//   writer.F32Tensor("output_norm.weight", {8}, values);
//   const std::string path = WriteTempFile("model.gguf", writer.Build());
#ifndef TIDEPOOL_TESTS_ENGINE_CHECKPOINT_GGUF_WRITER_H_
#define TIDEPOOL_TESTS_ENGINE_CHECKPOINT_GGUF_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/gguf.h"

namespace tidepool::engine {

// Thread-compatible.
class GgufWriter {
 public:
  // Adds metadata, in the order of the calls. `value` has only the bytes of the value.
  GgufWriter& Value(const std::string& key, GgufValueType type, const std::string& value);
  GgufWriter& U32(const std::string& key, uint32_t value);
  GgufWriter& F32(const std::string& key, float value);
  GgufWriter& Bool(const std::string& key, bool value);
  GgufWriter& String(const std::string& key, const std::string& value);
  GgufWriter& Strings(const std::string& key, const std::vector<std::string>& values);
  // Adds an array of `count` elements. `elements` has the bytes of the elements.
  GgufWriter& Array(const std::string& key, GgufValueType type, uint64_t count,
                    const std::string& elements);
  GgufWriter& I32s(const std::string& key, const std::vector<int32_t>& values);
  GgufWriter& Remove(const std::string& key);

  // Adds a tensor with these bytes. The fastest dimension is the first of `dims`.
  GgufWriter& Tensor(const std::string& name, GgmlType type, const std::vector<uint64_t>& dims,
                     const std::string& data);
  GgufWriter& F32Tensor(const std::string& name, const std::vector<uint64_t>& dims,
                        const std::vector<float>& values);

  // Also writes general.alignment when it is not the default.
  GgufWriter& set_alignment(uint32_t alignment);
  GgufWriter& set_version(uint32_t version);

  std::string Build();

  // Returns the offset of a field. The fields are "version", "n_tensors", "n_kv"; "KEY.length",
  // "KEY.type", "KEY.value"; "NAME.length", "NAME.n_dims", "NAME.dims", "NAME.type", "NAME.offset";
  // "data". Requires: Build was called.
  size_t OffsetOf(const std::string& mark) const { return marks_.at(mark); }
  const std::map<std::string, size_t>& marks() const { return marks_; }

 private:
  struct Entry {
    std::string key;
    uint32_t type;
    std::string value;
  };
  struct Info {
    std::string name;
    GgmlType type;
    std::vector<uint64_t> dims;
    std::string data;
  };

  std::vector<Entry> entries_;
  std::vector<Info> tensors_;
  std::map<std::string, size_t> marks_;
  uint32_t version_ = 3;
  uint32_t alignment_ = 32;
};

// Returns the bytes of a value, as they are in the file.
template <typename T>
std::string BytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}
template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// Replaces the bytes at `offset`.
template <typename T>
std::string Patched(std::string bytes, size_t offset, T value) {
  return bytes.replace(offset, sizeof(T), BytesOf(value));
}

// Returns the metadata of a tiny model of a supported architecture, without tensors.
GgufWriter TinyModel(const std::string& architecture);

// Writes a file under the test's own temporary folder and returns its path.
std::string WriteTempFile(const std::string& name, const std::string& bytes);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_TESTS_ENGINE_CHECKPOINT_GGUF_WRITER_H_
