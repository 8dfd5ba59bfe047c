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
//   app://*, tauri://*          any host, of schemes other than http and https
//   *                           every origin
// Thread-compatible. Any thread may read it.
class CorsOrigins {
 public:
  // INVALID_ARGUMENT says what is wrong with the pattern and what is accepted.
  absl::Status Add(absl::string_view pattern);

  bool empty() const { return !any_ && patterns_.empty(); }
  // True if "*" was added.
  bool any() const { return any_; }
  // `origin` is the header's value; it is empty if the client is not a web page.
  bool Allows(absl::string_view origin) const;

 private:
  struct Origin {
    std::string scheme, host, port;  // lower case; empty port: the scheme's default
  };
  static absl::Status Parse(absl::string_view text, Origin* origin);

  bool any_ = false;
  std::vector<Origin> patterns_;  // "*" as host or port matches any
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_CORS_ORIGINS_H_
