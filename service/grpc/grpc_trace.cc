#include "service/grpc/grpc_trace.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {
namespace {

// Returns the values of all entries with this name, joined by commas. This has the same meaning as
// one entry with all values.
std::string JoinedMetadata(const grpc::ServerContextBase& context, const char* name) {
  std::string joined;
  const auto [begin, end] = context.client_metadata().equal_range(name);
  for (auto entry = begin; entry != end; ++entry) {
    absl::StrAppend(&joined, joined.empty() ? "" : ",",
                    absl::string_view(entry->second.data(), entry->second.size()));
  }
  return joined;
}

}  // namespace

std::optional<TraceContext> TraceOf(const grpc::ServerContextBase& context) {
  return ParseTraceContext(JoinedMetadata(context, "traceparent"),
                           JoinedMetadata(context, "tracestate"));
}

}  // namespace tidepool::service
