// ReadChat: reads the conversation of a chat request: its messages, its tools and its template
// variables.
#ifndef TIDEPOOL_SERVICE_HTTP_CHAT_MESSAGES_H_
#define TIDEPOOL_SERVICE_HTTP_CHAT_MESSAGES_H_

#include "service/http/json_fields.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Reports faults in the request to `fields`.
void ReadChat(JsonFields* fields, v1::Chat* chat);
// Reads the limit on reasoning. Its field has different names in llama.cpp and vLLM. -1 means that
// there is no limit.
void ReadThinkingBudget(JsonFields* fields, v1::GenerateRequest* request);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_CHAT_MESSAGES_H_
