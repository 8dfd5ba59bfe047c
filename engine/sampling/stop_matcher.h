// StopMatcher: passes text through until a stop string is complete, and holds back text that may be
// the beginning of one.
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

// Plain data. The result depends on the text only, not on how it was split: the stop string that
// ends first wins, and among these the one that begins first.
class StopMatcher {
 public:
  // Requires: no string is empty.
  StopMatcher(std::vector<std::string> stops, StopText stop_text);

  struct Result {
    std::string text;      // text that is decided now
    bool stopped = false;  // text ends before the stop string, or after it if it is kept
  };
  // Requires: not stopped, and `text` consists of whole UTF-8 characters. So does the result.
  Result Append(absl::string_view text);

  // Returns the held-back text when no more text follows.
  std::string TakeHeld();

 private:
  std::vector<std::string> stops_;
  StopText stop_text_;
  std::string held_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_STOP_MATCHER_H_
