// BodyParser: finds the parts of a response, without the reasoning before it.
#ifndef TIDEPOOL_SERVICE_TOOLS_BODY_PARSER_H_
#define TIDEPOOL_SERVICE_TOOLS_BODY_PARSER_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "service/tools/output_piece.h"

namespace tidepool::service {

// Thread-compatible. The joined pieces do not depend on how the text is split.
class BodyParser {
 public:
  virtual ~BodyParser() = default;
  // Adds text. Appends the pieces that have become certain.
  virtual void Feed(absl::string_view text, OutputPieces* out) = 0;
  // Appends what was held back. Call it once, after the last text.
  virtual void Finish(OutputPieces* out) = 0;
  // Whether the text that comes next is reasoning, as far as is known.
  virtual bool in_reasoning() const { return false; }
  // Where the reasoning began or ended last: the number of bytes of text before this place.
  virtual int64_t reasoning_changed_at() const { return 0; }
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_BODY_PARSER_H_
