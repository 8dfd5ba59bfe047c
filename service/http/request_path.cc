#include "service/http/request_path.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/strip.h"

namespace tidepool::service {
namespace {

// Removes "http://HOST", which clients that use a proxy put before the path.
absl::string_view OriginForm(absl::string_view target) {
  if (!absl::ConsumePrefix(&target, "http://")) return target;
  const size_t path = target.find('/');
  return path == absl::string_view::npos ? "/" : target.substr(path);
}

}  // namespace

std::string PathOf(absl::string_view target) {
  target = OriginForm(target);
  target = target.substr(0, target.find_first_of("?#"));
  std::string path;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == '%' && i + 2 < target.size() && absl::ascii_isxdigit(target[i + 1]) &&
        absl::ascii_isxdigit(target[i + 2])) {
      path += absl::HexStringToBytes(target.substr(i + 1, 2));
      i += 2;
    } else {
      path += target[i];
    }
  }
  return path;
}

std::string HostOf(absl::string_view target, absl::string_view header) {
  if (!absl::ConsumePrefix(&target, "http://")) return std::string(header);
  return std::string(target.substr(0, target.find_first_of("/?#")));
}

}  // namespace tidepool::service
