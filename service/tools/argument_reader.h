// ArgumentReader: reads the arguments of one call while they stream, and makes JSON from them.
#ifndef TIDEPOOL_SERVICE_TOOLS_ARGUMENT_READER_H_
#define TIDEPOOL_SERVICE_TOOLS_ARGUMENT_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "service/tools/call_syntax.h"
#include "service/tools/tool_schemas.h"

namespace tidepool::service {

inline constexpr size_t kMaxKeyBytes = 256;  // maximum size of an argument's name

// Whether more text of the response may follow.
enum class TextEnd : uint8_t { kOpen, kLast };

// Thread-compatible. The JSON does not depend on how the text is split.
class ArgumentReader {
 public:
  enum class State : uint8_t {
    kMore,    // the arguments may continue
    kDone,    // the arguments are complete
    kBroken,  // the next text is not a part of the arguments
  };

  virtual ~ArgumentReader() = default;

  // Reads from the beginning of `text`, and appends the part of the JSON that later text cannot
  // change. Sets `*consumed` to the number of bytes that were read. The caller passes the other
  // bytes again, with more text after them. If `end` is kLast and the result is kMore, all bytes
  // were read.
  virtual State Read(absl::string_view text, TextEnd end, size_t* consumed, std::string* json) = 0;
};

// Returns the reader for a call of `tool`. `syntax` and `tools` must outlive it.
std::unique_ptr<ArgumentReader> MakeArgumentReader(const CallSyntax& syntax,
                                                   const ToolSchemas& tools,
                                                   absl::string_view tool);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_ARGUMENT_READER_H_
