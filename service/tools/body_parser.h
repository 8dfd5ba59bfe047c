// BodyParser: finds the parts of a response after its initial reasoning, which ResponseParser
// reads.
#ifndef TIDEPOOL_SERVICE_TOOLS_BODY_PARSER_H_
#define TIDEPOOL_SERVICE_TOOLS_BODY_PARSER_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "service/tools/output_piece.h"

namespace tidepool::service {

// Thread-compatible. The result of joining the pieces does not depend on how the text is split.
class BodyParser {
 public:
  virtual ~BodyParser() = default;
  // Adds text. Appends the pieces that later text cannot change.
  virtual void Feed(absl::string_view text, OutputPieces* out) = 0;
  // Appends the text that was held back. Call it once, after the last text.
  virtual void Finish(OutputPieces* out) = 0;
  // Whether the text that comes next is reasoning, as far as is known.
  virtual bool in_reasoning() const { return false; }
  // Returns the position in the text, in bytes, at which reasoning last began or ended.
  virtual int64_t reasoning_changed_at() const { return 0; }
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_BODY_PARSER_H_
