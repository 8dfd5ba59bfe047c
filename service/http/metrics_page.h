// MetricsPage: the counters of a front and its workers as Prometheus reads them
// (https://prometheus.io/docs/instrumenting/exposition_formats/). Names are vLLM's where it has
// one, with the prefix "tidepool:".
#ifndef TIDEPOOL_SERVICE_HTTP_METRICS_PAGE_H_
#define TIDEPOOL_SERVICE_HTTP_METRICS_PAGE_H_

#include <string>

#include "service/front/request_metrics.h"
#include "service/http/http_log.h"
#include "tidepool/v1/admin.pb.h"

namespace tidepool::service {

inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

// A worker that did not respond only has tidepool:worker_up. `principals` are those that the reader
// may see.
std::string MetricsPage(const v1::GetStatsResponse& stats, const RequestMetricsMap& requests,
                        const PrincipalUsageMap& principals, const HttpCounts& http = {});

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_METRICS_PAGE_H_
