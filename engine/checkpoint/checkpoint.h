// Checkpoint: tensors and metadata of a model, mapped read-only and checked, whatever the format on
// disk. Names of tensors and keys are GGUF's. GgufFile and HfDirectory are the two formats;
// open_checkpoint.h opens either.
//
//   ASSIGN_OR_RETURN(Checkpoint file, OpenCheckpoint("model.gguf"));
//   ASSIGN_OR_RETURN(int64_t layers, file.Int("llama.block_count"));
//   const GgufTensor* output = file.FindTensor("output.weight");  // null: not there
//
// Errors are one line, "FILE: KEY-or-TENSOR: what was found, what was expected": INVALID_ARGUMENT
// for content, NOT_FOUND if a file or part is missing, PERMISSION_DENIED if it is not readable. If
// another process truncates a mapped file, this process gets SIGBUS and ends. So replace
// checkpoints by renaming, not by writing into them.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_CHECKPOINT_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_CHECKPOINT_H_

#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/checkpoint/ggml_type.h"

namespace tidepool::engine {

// Types of metadata values, with the numbers of the file format.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// One metadata entry. Views point into the checkpoint.
struct GgufEntry {
  absl::string_view key;
  GgufValueType type = GgufValueType::kUint8;  // if is_array, the type of the elements
  bool is_array = false;
  uint64_t count = 1;  // number of elements; 1 for a scalar
  const std::byte* data =
      nullptr;  // checked to be wholly inside the checkpoint, as are all strings in it
};

// One tensor. dims[0] is the fastest; missing dims are 1. All bytes are inside the checkpoint.
struct GgufTensor {
  absl::string_view name;
  GgmlType type = GgmlType::kF32;
  int dim_count = 0;  // number of stored dims, 0 to 4
  std::array<int64_t, 4> dims = {1, 1, 1, 1};
  int part = 0;              // index of the split file with its data
  uint64_t file_offset = 0;  // offset of its first byte in that file
  size_t bytes = 0;
  const std::byte* data = nullptr;  // of the first slab
  // Where each slab of dims[0] x dims[1] begins; empty: one after the other at `data`.
  std::vector<const std::byte*> slabs;
  // Number of rows of each attention head whose rotary halves are interleaved when they are read:
  // row 2i is the i-th row of the first half, row 2i + 1 the i-th of the second. 0: rows are read
  // as they are stored.
  int64_t head_rows = 0;

  int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  size_t row_bytes() const {
    return dims[0] / TypeInfo(type).block_elements * TypeInfo(type).block_bytes;
  }
  // The beginning of row `index`, counted over all slabs.
  const std::byte* row(int64_t index) const;
  // True if row i begins i * row_bytes bytes after row 0, in each slab and in the whole tensor.
  bool rows_in_order() const { return head_rows == 0; }
  bool contiguous() const { return head_rows == 0 && slabs.empty(); }
  // For example "{576, 49152}", fastest dimension first.
  std::string ShapeString() const;
};

// File attributes. As long as they do not change, the content is assumed not to change.
struct FileIdentity {
  uint64_t size = 0;  // bytes
  uint64_t inode = 0;
  int64_t modified_ns = 0;  // since 1970; changed_ns too
  int64_t changed_ns = 0;   // inode change time, which also changes if modified_ns is set back

  bool operator==(const FileIdentity&) const = default;
};

FileIdentity IdentityOf(const struct stat& info);

// One file of a checkpoint. Views point into the Checkpoint.
struct GgufPart {
  absl::string_view path;
  absl::Span<const std::byte> bytes;  // the whole file
  FileIdentity identity;              // the identity of the file when it was opened
};

// A whole file, mapped read-only. Move-only.
struct MappedFile {
  std::string path;
  const std::byte* data = nullptr;
  uint64_t size = 0;
  uint64_t data_start = 0;  // where tensor data begins; size: there is none
  FileIdentity identity;

  // `expected` completes "not a regular file, expected ...". Errors as a checkpoint's.
  static absl::StatusOr<MappedFile> Open(const std::string& path, absl::string_view expected);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  absl::Span<const std::byte> bytes() const { return {data, size}; }
};

// Immutable once a format has filled it, and then thread-safe. Move-only; views stay valid over a
// move. Large because each type of metadata value has its readers.
class Checkpoint {
 public:
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;
  ~Checkpoint();

  // The file or directory that was opened.
  const std::string& path() const { return path_; }
  // "GGUF v3" and the like, for people.
  const std::string& format() const { return format_; }
  // Path of a file that is derived from the checkpoint and stored with it: the checkpoint's file
  // name followed by SUFFIX, or a file in its directory.
  std::string SidecarPath(absl::string_view suffix) const;
  int part_count() const { return static_cast<int>(parts_.size()); }
  uint64_t file_bytes() const;  // total of all parts
  // The latest modification time of any part, in nanoseconds since 1970.
  int64_t modified_ns() const;
  std::vector<GgufPart> parts() const;  // in order

  // Metadata in file order.
  absl::Span<const GgufEntry> metadata() const { return entries_; }
  bool HasKey(absl::string_view key) const { return Find(key) != nullptr; }
  const GgufEntry* Find(absl::string_view key) const;

  // Values by key. INVALID_ARGUMENT if the key is missing or the value has another kind. If the key
  // is missing, the ...Or forms return the default instead. Integers of all widths and signs are
  // accepted as integers, and both float widths as floats.
  absl::StatusOr<int64_t> Int(absl::string_view key) const;
  absl::StatusOr<int64_t> IntOr(absl::string_view key, int64_t fallback) const;
  absl::StatusOr<double> Float(absl::string_view key) const;
  absl::StatusOr<double> FloatOr(absl::string_view key, double fallback) const;
  absl::StatusOr<bool> Bool(absl::string_view key) const;
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool fallback) const;
  absl::StatusOr<absl::string_view> String(absl::string_view key) const;
  absl::StatusOr<absl::string_view> StringOr(absl::string_view key,
                                             absl::string_view fallback) const;
  // Arrays, read on each call. Strings are views into the file. Reading a whole vocabulary takes
  // milliseconds.
  absl::StatusOr<std::vector<absl::string_view>> Strings(absl::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> Ints(absl::string_view key) const;
  absl::StatusOr<std::vector<float>> Floats(absl::string_view key) const;
  absl::StatusOr<std::vector<bool>> Bools(absl::string_view key) const;

  // Formats a value for people: strings quoted and escaped, long arrays and strings truncated.
  static std::string FormatValue(const GgufEntry& entry);

  // Tensors of all parts, in file order.
  absl::Span<const GgufTensor> tensors() const { return tensors_; }
  const GgufTensor* FindTensor(absl::string_view name) const;  // null if missing

  // 32 hex digits that identify the checkpoint: XXH3-128 of each part's header, metadata and tensor
  // infos, its size, and samples of its tensor data. Up to 16 MiB of data are hashed completely,
  // otherwise 4 KiB of each of at most 512 tensors. Takes milliseconds. content_digest.h has the
  // digest of every byte.
  std::string SampledDigest() const;

  // Reads the pages that contain [data, data + bytes) into memory with one call. DATA_LOSS names
  // the file and the range if the disk cannot read it or the file was truncated. Without this
  // check, access to the range would end the process with SIGBUS. Kernels before 5.14 do not
  // support the check.
  absl::Status MapIn(const std::byte* data, size_t bytes) const;
  // Same for the rows [first, first + rows) of a tensor.
  absl::Status MapInRows(const GgufTensor& tensor, int64_t first, int64_t rows) const;
  // Same for the headers of all parts, which contain the tensors' names.
  absl::Status MapInHeaders() const;

  // Lets the kernel take back the pages that hold [data, data + bytes); reading them again reads
  // the file again. Ignores bytes that are not part of a file.
  void DropPages(const std::byte* data, size_t bytes) const;
  // Same for the rows [first, first + rows) of a tensor.
  void DropRows(const GgufTensor& tensor, int64_t first, int64_t rows) const;

  // Returns INVALID_ARGUMENT "FILE: subject: message", the format of all errors about this
  // checkpoint.
  absl::Status Error(absl::string_view subject, absl::string_view message) const;

 protected:
  Checkpoint() = default;
  void SetEntries(std::vector<GgufEntry> entries);
  // Returns false if there is already a tensor of this name.
  bool AddTensor(GgufTensor tensor);

  std::string path_;
  std::string format_;
  std::string sidecar_prefix_;
  std::vector<MappedFile> parts_;
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  // Memory of views that do not point into a file.
  std::vector<std::unique_ptr<std::byte[]>> owned_;

 private:
  absl::StatusOr<const GgufEntry*> Require(absl::string_view key) const;
  absl::Status WrongType(const GgufEntry& entry, absl::string_view expected) const;
  const MappedFile* FindPart(const std::byte* data) const;

  absl::flat_hash_map<absl::string_view, size_t> entry_index_;
  absl::flat_hash_map<absl::string_view, size_t> tensor_index_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_CHECKPOINT_H_
