#include "service/http/json.h"

#include <cstdint>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::service {
namespace {

constexpr int kMaxDepth = 64;
// Limits the memory of parsed JSON. Each value needs 16 bytes, even if its text is short.
constexpr int64_t kMaxValues = int64_t{4} << 20;

// Checks the limits during a parse. After the first error, it rejects every event.
class Watch {
 public:
  bool OnEvent(int depth, Json::parse_event_t event, const Json& parsed) {
    if (!status_.ok()) return false;
    if (depth > kMaxDepth) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("the JSON is nested deeper than ", kMaxDepth, " levels"));
    } else if (++values_ > kMaxValues) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("the JSON has more than ", kMaxValues, " values"));
    } else if (event == Json::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        status_ = absl::InvalidArgumentError(
            absl::StrCat("a JSON object has the key ", base::Quoted(key), " twice"));
      }
    }
    return status_.ok();
  }

  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
  int64_t values_ = 0;
  std::vector<std::set<std::string>> keys_;  // the keys of each object that is not closed yet
};

// Converts the JSON library's error, "[json.exception.parse_error.101] parse error at line 1,
// column 3: ...", to one readable line.
std::string Complaint(absl::string_view what) {
  constexpr size_t kMaxBytes = 200;
  const size_t prefix = what.find("] ");
  if (prefix != absl::string_view::npos) what.remove_prefix(prefix + 2);
  std::string line;
  base::AppendUtf8Lossy(what.substr(0, kMaxBytes), &line);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return line;
}

}  // namespace

absl::StatusOr<Json> ParseJsonText(absl::string_view text) {
  Watch watch;
  try {
    Json json = Json::parse(text.begin(), text.end(),
                            [&watch](int depth, Json::parse_event_t event, const Json& parsed) {
                              return watch.OnEvent(depth, event, parsed);
                            });
    RETURN_IF_ERROR(watch.status());
    return json;
  } catch (const Json::exception& error) {
    RETURN_IF_ERROR(watch.status());
    return absl::InvalidArgumentError(absl::StrCat("not JSON: ", Complaint(error.what())));
  }
}

absl::StatusOr<Json> ParseJsonBody(absl::string_view body) {
  if (body.empty()) return absl::InvalidArgumentError("the body is empty; send a JSON object");
  absl::StatusOr<Json> json = ParseJsonText(body);
  if (!json.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the body: ", json.status().message()));
  }
  if (!json->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body is a JSON ", json->type_name(), "; send an object"));
  }
  return json;
}

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace tidepool::service
