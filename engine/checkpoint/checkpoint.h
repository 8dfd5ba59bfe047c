// Checkpoint: tensors and metadata of a model, mapped read-only and checked. It has the same form
// for every format on disk: tensors and keys have the names that GGUF gives them. GgufFile and
// HfDirectory read the two formats; open_checkpoint.h opens a checkpoint of either format.
//
//   ASSIGN_OR_RETURN(Checkpoint file, OpenCheckpoint("model.gguf"));
//   ASSIGN_OR_RETURN(int64_t layers, file.Int("llama.block_count"));
//   const GgufTensor* output = file.FindTensor("output.weight");  // null if missing
//
// An error is one line: "FILE: KEY-or-TENSOR: what was found, what was expected". The error uses
// the names in the user's files. Its code is INVALID_ARGUMENT for wrong content, NOT_FOUND if a
// file or a part is missing, and PERMISSION_DENIED if a file is not readable. If another process
// truncates a mapped file, this process gets SIGBUS and ends. So replace checkpoints by renaming,
// not by writing into them.
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
#include "engine/checkpoint/file_names.h"
#include "engine/checkpoint/ggml_type.h"

namespace tidepool::engine {

// Types of metadata values. The numbers are those of the file format.
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

// One metadata entry. The views point into the checkpoint's memory.
struct GgufEntry {
  absl::string_view key;
  GgufValueType type = GgufValueType::kUint8;  // type of the value, or of an array's elements
  bool is_array = false;
  uint64_t count = 1;  // number of elements; 1 for a scalar
  // Start of the value. The whole value, with all its strings, was checked to be inside the
  // checkpoint.
  const std::byte* data = nullptr;
};

// One tensor. dims[0] is the dimension that varies fastest. Dimensions that are not stored are 1.
// All bytes of the tensor were checked to be inside the checkpoint.
struct GgufTensor {
  absl::string_view name;
  GgmlType type = GgmlType::kF32;
  int dim_count = 0;  // number of stored dimensions, 0 to 4
  std::array<int64_t, 4> dims = {1, 1, 1, 1};
  int part = 0;              // index of the file that contains the data, if the checkpoint is split
  uint64_t file_offset = 0;  // offset of the first byte in that file
  size_t bytes = 0;
  const std::byte* data = nullptr;  // start of the first slab
  // The start of each slab of dims[0] x dims[1] elements, or of dims[0] x slab_rows elements if
  // slab_rows is above 0. Empty if the slabs follow each other at `data`.
  std::vector<const std::byte*> slabs;
  int64_t slab_rows = 0;
  // 0 if rows are read as they are stored. Otherwise, the two rotary halves of each attention head
  // are interleaved when rows are read, and this is the number of rows of a head. Row 2i is then
  // the i-th row of the first half, and row 2i + 1 is the i-th row of the second half.
  int64_t head_rows = 0;
  // Both are above 0 if the file has the transposes of the matrices. Element i of row r of a slab
  // is then i * column_step + r * row_step elements after the slab's start. Both are 0 if the file
  // has the matrices themselves.
  int64_t column_step = 0;
  int64_t row_step = 0;

  int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  size_t row_bytes() const {
    return dims[0] / TypeInfo(type).block_elements * TypeInfo(type).block_bytes;
  }
  // Number of rows of each slab.
  int64_t rows_of_slab() const { return slab_rows > 0 ? slab_rows : dims[1]; }
  // The start of row `index`. Rows are counted over all slabs. Not for transposed tensors.
  const std::byte* row(int64_t index) const;
  // Copies rows to `out`, one after the other.
  void CopyRows(int64_t first, int64_t count, std::byte* out) const;
  bool transposed() const { return column_step > 0; }
  // Returns whether the rows of each matrix [dims[1], dims[0]] are stored in order. Row i then
  // begins i * row_bytes() bytes after the first row of its matrix.
  bool rows_in_order() const { return head_rows == 0 && slab_rows == 0 && !transposed(); }
  // The dimensions as text. See GgufShape.
  std::string ShapeString() const;
};

// Formats dimensions, for example "{576, 49152}". The fastest dimension is the first.
std::string GgufShape(absl::Span<const int64_t> dims);

// Attributes of a file. If they are unchanged, the content is assumed to be unchanged.
struct FileIdentity {
  uint64_t size = 0;  // bytes
  uint64_t inode = 0;
  int64_t modified_ns = 0;  // content's modification time, in ns since 1970
  // inode's change time, in ns since 1970; it also changes if somebody sets modified_ns back
  int64_t changed_ns = 0;

  bool operator==(const FileIdentity&) const = default;
};

FileIdentity IdentityOf(const struct stat& info);

// One file of a checkpoint. The views point into the Checkpoint's memory.
struct GgufPart {
  absl::string_view path;
  absl::Span<const std::byte> bytes;  // the whole file
  FileIdentity identity;              // attributes when the file was opened
};

// A whole file, mapped read-only. Move-only.
struct MappedFile {
  std::string path;
  const std::byte* data = nullptr;
  uint64_t size = 0;
  uint64_t data_start = 0;  // offset of the tensor data; equal to `size` if there is no tensor data
  FileIdentity identity;

  // Maps the file. `expected` completes the error "not a regular file, expected ...". Errors have
  // the same codes and format as those of Checkpoint.
  static absl::StatusOr<MappedFile> Open(const std::string& path, absl::string_view expected);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  absl::Span<const std::byte> bytes() const { return {data, size}; }
};

// Immutable after a format (GgufFile or HfDirectory) has filled it, and from then on thread-safe.
// Move-only; a move does not invalidate views. Large because each type of metadata value has its
// own functions.
class Checkpoint {
 public:
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;
  ~Checkpoint();

  // The path of the file or directory that was opened.
  const std::string& path() const { return path_; }
  // The format for people, for example "GGUF v3".
  const std::string& format() const { return format_; }
  // Path of a file that is derived from the checkpoint and stored beside it. For a GGUF file, the
  // path is the checkpoint's path followed by `suffix`. For a directory, it is a file in the
  // directory.
  std::string SidecarPath(absl::string_view suffix) const;
  int part_count() const { return static_cast<int>(parts_.size()); }
  uint64_t file_bytes() const;  // sum over all parts
  // The modification time of the part that was modified last, in nanoseconds since 1970.
  int64_t modified_ns() const;
  std::vector<GgufPart> parts() const;  // in the order of the parts

  // The metadata, in the order of the file.
  absl::Span<const GgufEntry> metadata() const { return entries_; }
  bool HasKey(absl::string_view key) const { return Find(key) != nullptr; }
  const GgufEntry* Find(absl::string_view key) const;

  // Return the value of a key, or INVALID_ARGUMENT if the key is missing or its value has another
  // type. If the key is missing, the ...Or functions return `fallback` instead. Int accepts
  // integers of each width, signed or unsigned. Float accepts both float widths.
  absl::StatusOr<int64_t> Int(absl::string_view key) const;
  absl::StatusOr<int64_t> IntOr(absl::string_view key, int64_t fallback) const;
  absl::StatusOr<double> Float(absl::string_view key) const;
  absl::StatusOr<double> FloatOr(absl::string_view key, double fallback) const;
  absl::StatusOr<bool> Bool(absl::string_view key) const;
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool fallback) const;
  absl::StatusOr<absl::string_view> String(absl::string_view key) const;
  absl::StatusOr<absl::string_view> StringOr(absl::string_view key,
                                             absl::string_view fallback) const;
  // Return an array. Each call reads the array again, which takes milliseconds for a whole
  // vocabulary. Strings are views into the file.
  absl::StatusOr<std::vector<absl::string_view>> Strings(absl::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> Ints(absl::string_view key) const;
  absl::StatusOr<std::vector<float>> Floats(absl::string_view key) const;
  absl::StatusOr<std::vector<bool>> Bools(absl::string_view key) const;

  // Formats a value for people: quotes and escapes strings, and truncates long arrays and strings.
  static std::string FormatValue(const GgufEntry& entry);

  // The tensors of all parts, in the order of the files.
  absl::Span<const GgufTensor> tensors() const { return tensors_; }
  const GgufTensor* FindTensor(absl::string_view name) const;  // null if missing

  // 32 hex digits that identify the checkpoint. They are an XXH3-128 over the header, metadata,
  // tensor infos, size and tensor data of each part. If there are more than 16 MiB of tensor data,
  // only samples are hashed: 4 KiB of each of at most 512 tensors. Takes milliseconds.
  // content_digest.h has a digest of every byte.
  std::string SampledDigest() const;

  // Reads the pages that contain [data, data + bytes) into memory with one call. If the disk cannot
  // read the range or the file was truncated, returns DATA_LOSS with the file and the range.
  // Without this check, an access to the range would end the process with SIGBUS. Kernels before
  // 5.14 do not support the check.
  absl::Status MapIn(const std::byte* data, size_t bytes) const;
  // Like MapIn, for the rows [first, first + rows) of a tensor.
  absl::Status MapInRows(const GgufTensor& tensor, int64_t first, int64_t rows) const;
  // Like MapIn, for the headers of all parts. The headers contain the tensors' names.
  absl::Status MapInHeaders() const;

  // Allows the kernel to evict the pages of [data, data + bytes). Later accesses read the file
  // again. Ignores bytes that are not part of a file.
  void DropPages(const std::byte* data, size_t bytes) const;
  // Like DropPages, for the rows [first, first + rows) of a tensor.
  void DropRows(const GgufTensor& tensor, int64_t first, int64_t rows) const;

  // Returns INVALID_ARGUMENT "FILE: subject: message". All errors about this checkpoint have this
  // format. If the subject is a key or a tensor, the message has its name in the file.
  absl::Status Error(absl::string_view subject, absl::string_view message) const;
  // Like Error, with the tensor's shape and the expected shape, in the form that the file uses.
  absl::Status ShapeError(const GgufTensor& tensor, absl::Span<const int64_t> expected) const;
  // Like Error, with the message "row N MESSAGE". If the file does not have this row, the message
  // is MESSAGE.
  absl::Status RowError(const GgufTensor& tensor, int64_t row, absl::string_view message) const;
  // Returns the file and the name that a key or a tensor has in the user's files.
  FilePlace PlaceOf(absl::string_view subject) const;

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
  FileNames names_;  // empty for GGUF files
  // Memory for views that do not point into a file.
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
