// TraceWriter: writes the routing trace (moe/trace/trace.h) of a running engine.
#ifndef TIDEPOOL_MOE_TRACE_TRACE_WRITER_H_
#define TIDEPOOL_MOE_TRACE_TRACE_WRITER_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "moe/policy/placement_policy.h"
#include "moe/trace/trace.h"

struct ZSTD_CCtx_s;

namespace tidepool::moe {

// Thread-compatible.
class TraceWriter {
 public:
  // Creates the file, or replaces an existing one. The output is compressed if the path ends in
  // .zst. Errors name the path.
  static absl::StatusOr<std::unique_ptr<TraceWriter>> Create(const std::string& path,
                                                             const TraceHeader& header);
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;
  // Closes the file without reporting errors.
  ~TraceWriter();

  // Writes one line. Requires: the routing matches the header. After the first error, later calls
  // write nothing and return the same error.
  absl::Status Write(const LayerRouting& routing);

  // Passes all output to the operating system, so that the file ends with a complete line.
  absl::Status Flush();

  // Completes and closes the file. Nothing may be written afterwards.
  absl::Status Close();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct FreeStream {
    void operator()(ZSTD_CCtx_s* stream) const;
  };
  enum class Boundary : uint8_t { kNone, kFlush, kEnd };

  TraceWriter(std::string path, const TraceHeader& header)
      : path_(std::move(path)), header_(header) {}

  void AppendRouting(const LayerRouting& routing);
  absl::Status WriteHeader();
  absl::Status WriteText(Boundary boundary);
  absl::Status WriteBytes(const char* bytes, size_t count);

  const std::string path_;
  const TraceHeader header_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::unique_ptr<ZSTD_CCtx_s, FreeStream> stream_;  // null if the output is not compressed
  std::vector<char> out_;
  std::string text_;  // text that was not compressed or written yet
  absl::Status failure_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_TRACE_TRACE_WRITER_H_
