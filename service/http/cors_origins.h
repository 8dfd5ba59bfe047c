// CorsOrigins: the origins of web pages that --cors-origin allows.
#ifndef TIDEPOOL_SERVICE_HTTP_CORS_ORIGINS_H_
#define TIDEPOOL_SERVICE_HTTP_CORS_ORIGINS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

// Matches origins as browsers send them (https://fetch.spec.whatwg.org/#origin-header):
//   https://chat.example        only this origin, with the scheme's default port
//   http://localhost:*          any port
//   app://*, tauri://*          any host; only for schemes other than http and https
//   *                           every origin
// Thread-compatible.
class CorsOrigins {
 public:
  // The error INVALID_ARGUMENT says what is wrong with the pattern and which patterns are accepted.
  absl::Status Add(absl::string_view pattern);

  bool empty() const { return !any_ && patterns_.empty(); }
  // Returns whether "*" was added.
  bool any() const { return any_; }
  // `origin` is the value of the Origin header. It is empty if the client is not a web page.
  bool Allows(absl::string_view origin) const;

 private:
  struct Origin {
    std::string scheme, host, port;  // in lower case; an empty port means the scheme's default port
  };
  static absl::Status Parse(absl::string_view text, Origin* origin);

  bool any_ = false;
  std::vector<Origin> patterns_;  // a host or port that is "*" matches any value
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_CORS_ORIGINS_H_
