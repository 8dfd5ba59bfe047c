// Converts and checks the header of an HTTP/1.1 request that Boost.Beast has parsed.
#ifndef TIDEPOOL_SERVICE_HTTP_REQUEST_HEAD_H_
#define TIDEPOOL_SERVICE_HTTP_REQUEST_HEAD_H_

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>

#include "service/http/http_exchange.h"

namespace tidepool::service {

using BeastRequestHeader =
    boost::beast::http::header</*isRequest=*/true, boost::beast::http::fields>;

HttpHead HeadOf(const BeastRequestHeader& header);

struct HeaderFault {
  int status = 400;
  std::string message;
};
// Some requests must be refused although their header could be parsed. Returns the reason, or
// nullopt if the request is accepted. `head` is HeadOf(header).
std::optional<HeaderFault> FaultOf(const BeastRequestHeader& header, const HttpHead& head);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_REQUEST_HEAD_H_
