// SeparateResponse: makes the message of an assistant from the text of its response.
#ifndef TIDEPOOL_SERVICE_TOOLS_RESPONSE_MESSAGE_H_
#define TIDEPOOL_SERVICE_TOOLS_RESPONSE_MESSAGE_H_

#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// If `syntax` is HARMONY and the content has harmony's markers, moves the reasoning and the calls
// from the content into their own fields. This is needed because the template of gpt-oss rejects
// contents with markers. Otherwise does nothing, because the templates of other families read the
// text.
void SeparateResponse(v1::ToolSyntax syntax, v1::ChatMessage* message);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_RESPONSE_MESSAGE_H_
