// StopMatcher: lets text through until a stop string completes, holding back what could still
// become the beginning of one.
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

// Plain data. What comes out depends on the text alone, not on how it was cut into pieces: the stop
// string that ends first wins, of those the one that begins first.
class StopMatcher {
 public:
  // Requires: no empty string.
  StopMatcher(std::vector<std::string> stops, StopText stop_text);

  struct Result {
    std::string text;      // decided now
    bool stopped = false;  // text ends before the stop string, or behind it if it is kept
  };
  // Requires: not stopped. `text` is whole UTF-8 characters, and so is what comes out.
  Result Append(absl::string_view text);

  // What is held back, when no more text will come.
  std::string TakeHeld();

 private:
  std::vector<std::string> stops_;
  StopText stop_text_;
  std::string held_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_STOP_MATCHER_H_
