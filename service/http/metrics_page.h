// MetricsPage: the metrics of a front and its workers in Prometheus's text format
// (https://prometheus.io/docs/instrumenting/exposition_formats/). If vLLM has the same metric, the
// name is vLLM's, with the prefix "tidepool:" in place of "vllm:".
#ifndef TIDEPOOL_SERVICE_HTTP_METRICS_PAGE_H_
#define TIDEPOOL_SERVICE_HTTP_METRICS_PAGE_H_

#include <string>

#include "service/front/request_metrics.h"
#include "service/http/http_log.h"
#include "tidepool/v1/admin.pb.h"

namespace tidepool::service {

inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

// Returns the page. For a worker that did not respond, it contains only tidepool:worker_up.
// `principals` are the principals that the reader may see.
std::string MetricsPage(const v1::GetStatsResponse& stats, const RequestMetricsMap& requests,
                        const PrincipalUsageMap& principals, const HttpCounts& http = {});

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_METRICS_PAGE_H_
