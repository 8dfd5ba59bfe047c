// WebAccess: what browsers and their pages may do over HTTP.
#ifndef TIDEPOOL_SERVICE_HTTP_WEB_ACCESS_H_
#define TIDEPOOL_SERVICE_HTTP_WEB_ACCESS_H_

#include "service/http/cors_origins.h"
#include "service/http/host_check.h"
#include "service/http/page_origin.h"

namespace tidepool::service {

struct WebAccess {
  Pages pages = Pages::kOfThisMachine;  // whose requests are served where nobody is authenticated
  CorsOrigins cors;                     // whose pages may read responses
  HostPolicy hosts;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_WEB_ACCESS_H_
