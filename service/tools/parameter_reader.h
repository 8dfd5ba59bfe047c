// ParameterReader: reads arguments that are parameters between markers (ArgumentForm::kParameters).
#ifndef TIDEPOOL_SERVICE_TOOLS_PARAMETER_READER_H_
#define TIDEPOOL_SERVICE_TOOLS_PARAMETER_READER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "service/tools/argument_reader.h"
#include "service/tools/call_syntax.h"
#include "service/tools/text_match.h"
#include "service/tools/tool_schemas.h"

namespace tidepool::service {

// Thread-compatible. The text of a string is passed on as it arrives. A value of another type is
// passed on when it is complete. A value ends at its end marker only if the next parameter or the
// end of the call follows. So a value can contain the marker.
class ParameterReader final : public ArgumentReader {
 public:
  // `syntax` and `tools` must outlive this object.
  ParameterReader(const CallSyntax& syntax, const ToolSchemas& tools, std::string tool);

  State Read(absl::string_view text, TextEnd end, size_t* consumed, std::string* json) override;

 private:
  enum class Part : uint8_t { kBetween, kLineBreak, kText, kTyped };

  // Each of these functions reads the next part. It returns nullopt if it has read something and
  // the next part can be read.
  std::optional<State> ReadBetween(absl::string_view text, TextEnd end, size_t* used,
                                   std::string* json);
  std::optional<State> ReadKey(absl::string_view text, size_t begin, size_t* used,
                               std::string* json);
  std::optional<State> ReadValue(absl::string_view text, TextEnd end, size_t* used,
                                 std::string* json);
  // Finds the end of the value, from scanned_ on. Sets `*value_end` to the end of the value, and
  // `*after` to the position after the end marker. kPartial: the value is certain up to
  // `*value_end`.
  Match FindEnd(absl::string_view text, TextEnd end, size_t* value_end, size_t* after) const;
  // Returns whether `text`, which follows an end marker, shows that the value ended there. If the
  // end marker is repeated, `length` is the length of the repetitions.
  Matched Follows(absl::string_view text) const;
  size_t WithoutLineBreak(absl::string_view text, size_t end) const;

  const CallSyntax& syntax_;
  const ToolSchemas& tools_;
  const std::string tool_;
  // The texts that end a key. key_end_ is for values that are text. json_key_end_ is for values
  // that are JSON; if it is empty, key_end_ is for all values.
  const absl::string_view key_end_, json_key_end_;
  const absl::string_view value_end_;
  const bool own_lines_;  // a value is on lines of its own

  Part part_ = Part::kBetween;
  bool any_ = false;          // a parameter was read
  bool typed_ = false;        // the value is not text
  ValueTypes types_;          // types that the schema allows for the value
  bool value_begun_ = false;  // a part of the value was passed on
  size_t scanned_ = 0;        // number of bytes that were searched for the value's end
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_PARAMETER_READER_H_
