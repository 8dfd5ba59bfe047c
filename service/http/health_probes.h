// HealthProbes: the state of the process for probes and load balancers: /health, /healthz, /readyz.
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
  // Whether a worker accepts requests.
  void SetReady(bool ready) { ready_ = ready; }
  // While the session store cannot be written, the process is not ready.
  void SetStore(const absl::Status& store) { store_ok_ = store.ok(); }
  // OK, or why the process must be restarted.
  void SetLive(const absl::Status& live) {
    base::MutexLock lock(&mutex_);
    live_ = live;
  }
  // From now on the process is not ready, even after SetReady.
  void StopReady() { draining_ = true; }

  // The handlers must not be called after this object is destroyed.
  void AddTo(Routes* routes) const;

  // As in vLLM, only the status matters: 200 if the process is live and ready.
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
