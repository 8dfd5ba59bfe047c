// GgufFileWriter: writes a GGUF v3 file. The tensors' data may be larger than memory.
//
//   GgufMetadata metadata;
//   metadata.SetString("general.architecture", "llama").SetU32("llama.block_count", 2);
//   ASSIGN_OR_RETURN(std::unique_ptr<GgufFileWriter> writer,
//                    GgufFileWriter::Create("out.gguf", metadata, {{"output.weight", ...}}, {}));
//   RETURN_IF_ERROR(writer->Append(bytes));  // tensor data, in order, in pieces of any size
//   RETURN_IF_ERROR(writer->Finish());
//
// The file gets its final name only when it is complete.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_GGUF_FILE_WRITER_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_GGUF_FILE_WRITER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/checkpoint/ggml_type.h"
#include "engine/checkpoint/gguf.h"
#include "kernels/base/atomic_file.h"

namespace tidepool::engine {

// Keys and values, in the order in which the keys were first set. Setting a key again replaces its
// value. Thread-compatible.
class GgufMetadata {
 public:
  GgufMetadata& SetU32(absl::string_view key, uint32_t value);
  GgufMetadata& SetF32(absl::string_view key, float value);
  GgufMetadata& SetBool(absl::string_view key, bool value);
  GgufMetadata& SetString(absl::string_view key, absl::string_view value);
  GgufMetadata& SetStrings(absl::string_view key, absl::Span<const std::string> values);
  GgufMetadata& SetBools(absl::string_view key, const std::vector<bool>& values);
  GgufMetadata& SetI32s(absl::string_view key, absl::Span<const int32_t> values);
  GgufMetadata& SetF32s(absl::string_view key, absl::Span<const float> values);
  // Copies an entry of another file. The entry may have any type.
  GgufMetadata& Copy(const GgufEntry& entry);

  size_t size() const { return entries_.size(); }
  // The value of the key general.alignment. If it is not set, the format's default.
  uint32_t alignment() const { return alignment_; }
  // All entries, in the encoding of the file format.
  std::string Bytes() const;

 private:
  struct Entry {
    std::string key;
    std::string value;  // encoded type and value
  };
  GgufMetadata& Set(absl::string_view key, std::string value);

  std::vector<Entry> entries_;
  uint32_t alignment_ = 32;
};

// Returns a GGUF file that has metadata and no tensors.
std::string GgufHeader(const GgufMetadata& metadata);

// A tensor to be written. dims[0] is the dimension that varies fastest.
struct GgufTensorPlan {
  std::string name;
  GgmlType type = GgmlType::kF32;
  int dim_count = 1;
  std::array<int64_t, 4> dims = {1, 1, 1, 1};

  int64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  uint64_t row_bytes() const {
    return dims[0] / TypeInfo(type).block_elements * TypeInfo(type).block_bytes;
  }
  uint64_t bytes() const { return rows() * row_bytes(); }
};

// Thread-compatible. If it is destroyed before Finish, no file remains.
class GgufFileWriter {
 public:
  // Writes the header, and allocates the space of the whole file if the file system supports this.
  // Returns the same errors as base::AtomicFile. Requires: rows consist of whole blocks, and names
  // have at most 63 bytes.
  static absl::StatusOr<std::unique_ptr<GgufFileWriter>> Create(const std::string& path,
                                                                const GgufMetadata& metadata,
                                                                std::vector<GgufTensorPlan> tensors,
                                                                base::ExistingFile existing);
  GgufFileWriter(const GgufFileWriter&) = delete;
  GgufFileWriter& operator=(const GgufFileWriter&) = delete;

  // Appends tensor data, without the padding between tensors. Requires: the total of all appended
  // bytes is at most the size of all tensors.
  absl::Status Append(absl::Span<const std::byte> bytes);

  // Completes the file and gives it its final name. Requires: all data was appended. No other
  // function may be called afterwards.
  absl::Status Finish();

  uint64_t file_bytes() const { return file_bytes_; }

 private:
  GgufFileWriter(uint32_t alignment, std::vector<GgufTensorPlan> tensors)
      : alignment_(alignment), tensors_(std::move(tensors)) {}

  std::string Header(const GgufMetadata& metadata) const;
  // Pads to the next multiple of the alignment.
  absl::Status Pad();

  const uint64_t alignment_;
  const std::vector<GgufTensorPlan> tensors_;
  std::unique_ptr<base::AtomicFile> file_;
  uint64_t file_bytes_ = 0;
  size_t tensor_ = 0;  // the tensor that is being written
  uint64_t left_ = 0;  // bytes of that tensor that are not written yet
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_GGUF_FILE_WRITER_H_
