// WebAccess: what browsers and web pages may do over HTTP.
#ifndef TIDEPOOL_SERVICE_HTTP_WEB_ACCESS_H_
#define TIDEPOOL_SERVICE_HTTP_WEB_ACCESS_H_

#include "service/http/cors_origins.h"
#include "service/http/host_check.h"
#include "service/http/page_origin.h"

namespace tidepool::service {

struct WebAccess {
  Pages pages = Pages::kOfThisMachine;  // pages that may call a server without authentication
  CorsOrigins cors;                     // pages of other origins that may read responses
  HostPolicy hosts;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_WEB_ACCESS_H_
