#include "service/front/convert_sessions.h"

#include <gtest/gtest.h>

namespace tidepool::service {
namespace {

// A newer worker may send a finish reason that is unknown here. It also ends the turn.
TEST(ConvertSessionsTest, AnUnknownFinishIsAnEnd) {
  EXPECT_EQ(FromProto(v1::FINISH_REASON_UNSPECIFIED), TurnFinish::kRunning);
  EXPECT_EQ(FromProto(v1::LENGTH), TurnFinish::kLength);
  EXPECT_EQ(FromProto(static_cast<v1::FinishReason>(99)), TurnFinish::kStop);
}

}  // namespace
}  // namespace tidepool::service
