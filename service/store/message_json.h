// The form in which messages are stored: a JSON array of objects.
#ifndef TIDEPOOL_SERVICE_STORE_MESSAGE_JSON_H_
#define TIDEPOOL_SERVICE_STORE_MESSAGE_JSON_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "service/store/session_store.h"

namespace tidepool::service {

std::string MessagesToJson(const std::vector<StoredMessage>& messages);

// DATA_LOSS if `json` was not written by MessagesToJson.
absl::StatusOr<std::vector<StoredMessage>> MessagesFromJson(absl::string_view json);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_MESSAGE_JSON_H_
