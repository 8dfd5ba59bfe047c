// JsonWatch: refuses JSON texts that are nested too deeply, have too many values, or repeat a key
// in an object. The JSON library checks none of these.
//
//   JsonWatch<Json> watch({.max_depth = 64});
//   Json json = Json::parse(text, watch.callback(), /*allow_exceptions=*/false);
//   if (!watch.fault().empty()) return Error(watch.fault());
#ifndef TIDEPOOL_KERNELS_BASE_JSON_WATCH_H_
#define TIDEPOOL_KERNELS_BASE_JSON_WATCH_H_

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"

namespace tidepool::base {

struct JsonLimits {
  int max_depth = 64;
  // Limits the memory of the result. Each value needs 16 bytes, even if its text is short.
  int64_t max_values = std::numeric_limits<int64_t>::max();
};

// `Json` is a class of nlohmann's JSON library. Thread-compatible. For one parse.
template <typename Json>
class JsonWatch {
 public:
  explicit JsonWatch(JsonLimits limits) : limits_(limits) {}

  // Returns the parser's callback. This object must outlive the parse.
  auto callback() {
    return [this](int depth, typename Json::parse_event_t event, const Json& parsed) {
      return OnEvent(depth, event, parsed);
    };
  }

  // Returns what is wrong, such as "is nested deeper than 64 levels", or nothing. After a fault,
  // the result of the parse is meaningless.
  const std::string& fault() const { return fault_; }

 private:
  using Event = typename Json::parse_event_t;

  // After the first fault, the parser discards all further values.
  bool OnEvent(int depth, Event event, const Json& parsed) {
    if (!fault_.empty()) return false;
    if (depth > limits_.max_depth) {
      fault_ = absl::StrCat("is nested deeper than ", limits_.max_depth, " levels");
    } else if (++values_ > limits_.max_values) {
      fault_ = absl::StrCat("has more than ", limits_.max_values, " values");
    } else if (event == Event::object_start) {
      keys_.emplace_back();
    } else if (event == Event::object_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      const std::string& key = parsed.template get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        fault_ = absl::StrCat("has the key ", Quoted(key), " twice in one object");
      }
    }
    return fault_.empty();
  }

  const JsonLimits limits_;
  std::string fault_;
  int64_t values_ = 0;
  std::vector<std::set<std::string>> keys_;  // the keys of each open object
};

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_JSON_WATCH_H_
