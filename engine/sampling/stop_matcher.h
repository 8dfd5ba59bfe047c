// StopMatcher: passes text through until a stop string is complete. Text that may be the start of a
// stop string is held back.
//
//   StopMatcher matcher({"\n\nUser:"}, StopText::kDrop);
//   matcher.Append("Hello\n");  // {"Hello", false}: "\n" may begin the stop string
//   matcher.Append("you");      // {"\nyou", false}
#ifndef TIDEPOOL_ENGINE_SAMPLING_STOP_MATCHER_H_
#define TIDEPOOL_ENGINE_SAMPLING_STOP_MATCHER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tidepool::engine {

enum class StopText : bool { kDrop, kKeep };

// Plain data. The result depends only on the text, and not on how it was split. The stop string
// that ends first is matched. If several end at the same position, the one that begins first is
// matched.
class StopMatcher {
 public:
  // Requires: no string is empty.
  StopMatcher(std::vector<std::string> stops, StopText stop_text);

  struct Result {
    std::string text;      // text that is final now
    bool stopped = false;  // true if `text` ends before the stop string (kDrop) or after it (kKeep)
  };
  // Requires: not stopped, and `text` consists of whole UTF-8 characters. The result then also
  // consists of whole characters.
  Result Append(absl::string_view text);

  // Returns the text that was held back. Call it when no more text follows.
  std::string TakeHeld();

 private:
  std::vector<std::string> stops_;
  StopText stop_text_;
  std::string held_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_STOP_MATCHER_H_
