// The form in which token ids are stored: four bytes each, little-endian.
#ifndef TIDEPOOL_SERVICE_STORE_TOKEN_BYTES_H_
#define TIDEPOOL_SERVICE_STORE_TOKEN_BYTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::service {

std::string PackTokens(absl::Span<const int32_t> tokens);

// Appends the tokens in `bytes` to `tokens`. DATA_LOSS if the number of bytes is not a multiple of
// four.
absl::Status UnpackTokens(absl::string_view bytes, std::vector<int32_t>* tokens);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_TOKEN_BYTES_H_
