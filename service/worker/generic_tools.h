// Tool calls for chat templates that do not support tools (tidepool.v1.GENERIC_TOOLS).
#ifndef TIDEPOOL_SERVICE_WORKER_GENERIC_TOOLS_H_
#define TIDEPOOL_SERVICE_WORKER_GENERIC_TOOLS_H_

#include "engine/chat_template/chat_template.h"

namespace tidepool::service {

// Where the description of the tools is put.
enum class ToolsPlace : uint8_t { kSystemMessage, kUserMessage };

// Writes the tools of `inputs` into a message, and the calls and results of earlier messages as
// text. Then removes the tools, because the template does not support tools. Returns the number of
// messages that were added before the first message.
int DescribeTools(ToolsPlace place, engine::ChatInputs* inputs);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_GENERIC_TOOLS_H_
