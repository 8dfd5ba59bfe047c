#include "tests/engine/checkpoint/gguf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

std::string LengthAndText(const std::string& text) {
  return BytesOf(static_cast<uint64_t>(text.size())) + text;
}

}  // namespace

GgufWriter& GgufWriter::Value(const std::string& key, GgufValueType type,
                              const std::string& value) {
  Remove(key);
  entries_.push_back({key, static_cast<uint32_t>(type), value});
  return *this;
}

GgufWriter& GgufWriter::U32(const std::string& key, uint32_t value) {
  return Value(key, GgufValueType::kUint32, BytesOf(value));
}

GgufWriter& GgufWriter::F32(const std::string& key, float value) {
  return Value(key, GgufValueType::kFloat32, BytesOf(value));
}

GgufWriter& GgufWriter::Bool(const std::string& key, bool value) {
  return Value(key, GgufValueType::kBool, std::string(1, value ? 1 : 0));
}

GgufWriter& GgufWriter::String(const std::string& key, const std::string& value) {
  return Value(key, GgufValueType::kString, LengthAndText(value));
}

GgufWriter& GgufWriter::Strings(const std::string& key, const std::vector<std::string>& values) {
  std::string elements;
  for (const std::string& value : values) elements += LengthAndText(value);
  return Array(key, GgufValueType::kString, values.size(), elements);
}

GgufWriter& GgufWriter::Array(const std::string& key, GgufValueType type, uint64_t count,
                              const std::string& elements) {
  return Value(key, GgufValueType::kArray,
               BytesOf(static_cast<uint32_t>(type)) + BytesOf(count) + elements);
}

GgufWriter& GgufWriter::I32s(const std::string& key, const std::vector<int32_t>& values) {
  return Array(key, GgufValueType::kInt32, values.size(), BytesOf(values));
}

GgufWriter& GgufWriter::Remove(const std::string& key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
  return *this;
}

GgufWriter& GgufWriter::Tensor(const std::string& name, GgmlType type,
                               const std::vector<uint64_t>& dims, const std::string& data) {
  tensors_.push_back({name, type, dims, data});
  return *this;
}

GgufWriter& GgufWriter::F32Tensor(const std::string& name, const std::vector<uint64_t>& dims,
                                  const std::vector<float>& values) {
  return Tensor(name, GgmlType::kF32, dims, BytesOf(values));
}

GgufWriter& GgufWriter::set_alignment(uint32_t alignment) {
  alignment_ = alignment;
  return U32("general.alignment", alignment);
}

GgufWriter& GgufWriter::set_version(uint32_t version) {
  version_ = version;
  return *this;
}

std::string GgufWriter::Build() {
  marks_.clear();
  std::string out = "GGUF";
  const auto mark = [&](const std::string& name) { marks_[name] = out.size(); };
  const auto pad = [&](std::string* text) {
    text->resize((text->size() + alignment_ - 1) / alignment_ * alignment_);
  };
  mark("version");
  out += BytesOf(version_);
  mark("n_tensors");
  out += BytesOf(static_cast<uint64_t>(tensors_.size()));
  mark("n_kv");
  out += BytesOf(static_cast<uint64_t>(entries_.size()));
  for (const Entry& entry : entries_) {
    mark(entry.key + ".length");
    out += LengthAndText(entry.key);
    mark(entry.key + ".type");
    out += BytesOf(entry.type);
    mark(entry.key + ".value");
    out += entry.value;
  }
  std::string data;
  for (const Info& tensor : tensors_) {
    pad(&data);
    mark(tensor.name + ".length");
    out += LengthAndText(tensor.name);
    mark(tensor.name + ".n_dims");
    out += BytesOf(static_cast<uint32_t>(tensor.dims.size()));
    mark(tensor.name + ".dims");
    out += BytesOf(tensor.dims);
    mark(tensor.name + ".type");
    out += BytesOf(static_cast<uint32_t>(tensor.type));
    mark(tensor.name + ".offset");
    out += BytesOf(static_cast<uint64_t>(data.size()));
    data += tensor.data;
  }
  if (!tensors_.empty()) pad(&out);
  mark("data");
  return out + data;
}

GgufWriter TinyModel(const std::string& architecture) {
  const std::string prefix = architecture + ".";
  GgufWriter writer;
  writer.String("general.architecture", architecture)
      .String("general.name", "tiny")
      .U32(prefix + "block_count", 2)
      .U32(prefix + "context_length", 128)
      .U32(prefix + "embedding_length", 32)
      .U32(prefix + "feed_forward_length", 64)
      .U32(prefix + "attention.head_count", 4)
      .U32(prefix + "attention.head_count_kv", 2)
      .F32(prefix + "attention.layer_norm_rms_epsilon", 1e-5f)
      .Strings("tokenizer.ggml.tokens", {"a", "b", "c", "<|end|>"});
  if (architecture.find("moe") != std::string::npos) {
    writer.U32(prefix + "expert_count", 8)
        .U32(prefix + "expert_used_count", 2)
        .U32(prefix + "expert_feed_forward_length", 16);
  }
  return writer;
}

std::string WriteTempFile(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  CHECK(file.good()) << "cannot write " << path;
  return path;
}

}  // namespace tidepool::engine
