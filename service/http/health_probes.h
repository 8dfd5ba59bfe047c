// HealthProbes: reports the state of the process to probes and load balancers, at /health, /healthz
// and /readyz.
#ifndef TIDEPOOL_SERVICE_HTTP_HEALTH_PROBES_H_
#define TIDEPOOL_SERVICE_HTTP_HEALTH_PROBES_H_

#include <atomic>

#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "service/http/http_exchange.h"
#include "service/http/route_table.h"

namespace tidepool::service {

// Thread-safe.
class HealthProbes {
 public:
  // `ready`: whether a worker accepts requests.
  void SetReady(bool ready) { ready_ = ready; }
  // `store` is an error while the session store cannot be written. The process is not ready then.
  void SetStore(const absl::Status& store) { store_ok_ = store.ok(); }
  // `live` is OK, or says why the process must be restarted.
  void SetLive(const absl::Status& live) {
    base::MutexLock lock(&mutex_);
    live_ = live;
  }
  // From now on the process is not ready, even if SetReady(true) is called.
  void StopReady() { draining_ = true; }

  // Adds the routes of the probes. Their handlers must not be called after this object is
  // destroyed.
  void AddTo(Routes* routes) const;

  // Returns 200 if the process is live and ready, otherwise 503. The body is empty, as in vLLM.
  HttpResponse Health() const;
  HttpResponse Healthz() const;
  HttpResponse Readyz() const;

 private:
  absl::Status Live() const;

  std::atomic<bool> ready_ = false;
  std::atomic<bool> store_ok_ = true;
  std::atomic<bool> draining_ = false;
  mutable base::Mutex mutex_;
  absl::Status live_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HEALTH_PROBES_H_
