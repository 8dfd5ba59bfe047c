// Converts stored sessions to wire messages and back.
#ifndef TIDEPOOL_SERVICE_FRONT_CONVERT_SESSIONS_H_
#define TIDEPOOL_SERVICE_FRONT_CONVERT_SESSIONS_H_

#include "service/store/session_store.h"
#include "tidepool/v1/inference.pb.h"
#include "tidepool/v1/sessions.pb.h"

namespace tidepool::service {

StoredMessage FromProto(const v1::ChatMessage& message);
void ToProto(const StoredMessage& message, v1::ChatMessage* out);
void ToProto(const SessionInfo& info, v1::Session* out);
// Converts the session's info and its log.
void ToProto(const SessionLogData& log, v1::Session* out);
// Converts how a turn ended. A turn that is still running becomes FINISH_REASON_UNSPECIFIED.
v1::FinishReason ToProto(TurnFinish finish);
TurnFinish FromProto(v1::FinishReason finish);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_CONVERT_SESSIONS_H_
