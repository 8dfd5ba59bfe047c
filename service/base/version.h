// The version of this release.
#ifndef TIDEPOOL_SERVICE_BASE_VERSION_H_
#define TIDEPOOL_SERVICE_BASE_VERSION_H_

namespace tidepool::service {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_VERSION_H_
