#include "service/http/json.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/json_watch.h"
#include "kernels/base/utf8.h"

namespace tidepool::service {
namespace {

constexpr base::JsonLimits kLimits = {.max_depth = 64, .max_values = int64_t{4} << 20};

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
  base::JsonWatch<Json> watch(kLimits);
  std::string error;
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), watch.callback());
  } catch (const Json::exception& thrown) {
    error = absl::StrCat("not JSON: ", Complaint(thrown.what()));
  }
  if (!watch.fault().empty()) error = absl::StrCat("the JSON ", watch.fault());
  if (!error.empty()) return absl::InvalidArgumentError(error);
  return json;
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
