#include "service/http/route_table.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kernels/base/utf8.h"
#include "service/http/api_response.h"

namespace tidepool::service {
namespace {

bool IsGet(const ApiPath& api) { return absl::string_view(api.method) == "GET"; }

// Returns whether the content type is JSON. Requiring JSON is a protection. A web page can post a
// form to any server without the server's consent, but only with a content type of forms. So pages
// of other sites cannot send completion requests through a user's browser.
bool IsJson(const std::string& content_type) {
  const std::string type = absl::AsciiStrToLower(
      absl::StripAsciiWhitespace(content_type.substr(0, content_type.find(';'))));
  return type == "application/json";
}

bool IsEncoded(const std::string& content_encoding) {
  return !content_encoding.empty() && !absl::EqualsIgnoreCase(content_encoding, "identity");
}

}  // namespace

const Route* RouteTable::Find(const std::string& path) const {
  for (const Route& route : routes_) {
    const absl::string_view known = route.api.path;
    if (absl::EndsWith(known, "/") && absl::StartsWith(path, known)) return &route;
    // Some clients add a '/' to the end of the path.
    if (path == known || path == absl::StrCat(known, "/")) return &route;
  }
  return nullptr;
}

std::string RouteTable::LabelOf(const std::string& path) const {
  const Route* route = Find(path);
  return route == nullptr ? "other" : route->api.path;
}

std::vector<ApiPath> RouteTable::Paths() const {
  std::vector<ApiPath> paths;
  paths.reserve(routes_.size());
  for (const Route& route : routes_) paths.push_back(route.api);
  return paths;
}

HttpResponse RouteTable::UnknownPath(const std::string& path) const {
  return RefusalResponse(404,
                         absl::StrCat("unknown path ", base::Quoted(path), "; known paths: ",
                                      absl::StrJoin(routes_, ", ",
                                                    [](std::string* list, const Route& one) {
                                                      list->append(one.api.path);
                                                    })),
                         "not_found");
}

std::string AllowOf(const ApiPath& api) {
  return absl::StrCat(api.method, IsGet(api) ? ", HEAD" : "", ", OPTIONS");
}

std::optional<HttpResponse> CheckMethod(const ApiPath& api, const HttpHead& head) {
  if (head.method == "OPTIONS" || head.method == api.method) return std::nullopt;
  if (IsGet(api) && head.method == "HEAD") return std::nullopt;
  const std::string allow = AllowOf(api);
  HttpResponse response =
      RefusalResponse(405,
                      absl::StrCat(base::Quoted(head.path), " does not support the method ",
                                   base::Quoted(head.method), "; use ", allow),
                      "method_not_allowed");
  response.headers = {{"Allow", allow}};
  return response;
}

std::optional<HttpResponse> CheckContentType(const ApiPath& api, const HttpHead& head) {
  if (IsGet(api)) return std::nullopt;
  if (IsEncoded(head.content_encoding)) {
    HttpResponse response = RefusalResponse(
        415,
        absl::StrCat(
            "Content-Encoding is ", base::Quoted(head.content_encoding),
            ", which is not supported; send the body uncompressed, without Content-Encoding"),
        "unsupported_media_type");
    response.headers = {{"Accept-Encoding", "identity"}};
    return response;
  }
  if (!IsJson(head.content_type)) {
    return RefusalResponse(415,
                           absl::StrCat("the body's type is ", base::Quoted(head.content_type),
                                        "; send Content-Type: application/json"),
                           "unsupported_media_type");
  }
  return std::nullopt;
}

}  // namespace tidepool::service
