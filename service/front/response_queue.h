// ResponseQueue: the messages of one response that wait for the client. The client receives one
// message at a time. If the response belongs to a session, a message also waits until it is in the
// session's log.
#ifndef TIDEPOOL_SERVICE_FRONT_RESPONSE_QUEUE_H_
#define TIDEPOOL_SERVICE_FRONT_RESPONSE_QUEUE_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Thread-compatible.
class ResponseQueue {
 public:
  // The client resumes after `resume_after` tokens, so one message must end exactly there. 0: the
  // client does not resume.
  explicit ResponseQueue(int64_t resume_after) : resume_after_(resume_after) {}

  void Push(v1::GenerateResponse response, bool logged);
  // The oldest message that was not in the log is now in the log.
  void MarkLogged();
  // Merges all messages that may be sent into one and returns it. Returns nullopt if no message may
  // be sent, or if the client has not received the last returned message yet.
  std::optional<v1::GenerateResponse> Take();
  // The client has received the last returned message. Returns the number of its tokens. Prompt
  // tokens in a prompt report (prompt_report.h) are included.
  int64_t OnTaken();
  // Returns whether the client has received the last message of the response.
  bool ended() const { return last_ && !in_flight_; }
  void Clear() { waiting_.clear(); }

 private:
  struct Message {
    v1::GenerateResponse response;
    bool logged = false;
  };

  const int64_t resume_after_;
  std::deque<Message> waiting_;
  bool in_flight_ = false;  // the client has not received the current message yet
  int64_t tokens_ = 0;      // number of tokens in the current message
  bool last_ = false;       // the current message has a finish_reason
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_RESPONSE_QUEUE_H_
