// AnswerQueue: messages of one response that wait for the client, which takes one at a time.
// Messages of a session also wait until they are in the log.
#ifndef TIDEPOOL_SERVICE_FRONT_ANSWER_QUEUE_H_
#define TIDEPOOL_SERVICE_FRONT_ANSWER_QUEUE_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Thread-compatible.
class AnswerQueue {
 public:
  // A message ends after `resume_after` tokens, because the client resumes there. 0: no such
  // position.
  explicit AnswerQueue(int64_t resume_after) : resume_after_(resume_after) {}

  void Push(v1::GenerateResponse response, bool logged);
  // The oldest message that was not in the log is now.
  void MarkLogged();
  // Returns all waiting messages, merged into one. Returns nullopt if none can be sent, or if the
  // client has not taken the previous one yet.
  std::optional<v1::GenerateResponse> Take();
  // The client has taken the message. Returns the number of its tokens, including those of the
  // prompt report.
  int64_t OnTaken();
  // True if the client has taken the last message of the response.
  bool ended() const { return last_ && !under_way_; }
  void Clear() { waiting_.clear(); }

 private:
  struct Message {
    v1::GenerateResponse response;
    bool logged = false;
  };

  const int64_t resume_after_;
  std::deque<Message> waiting_;
  bool under_way_ = false;  // the client has not taken the current message yet
  int64_t tokens_ = 0;      // tokens of the current message
  bool last_ = false;       // the current message has a finish_reason
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_ANSWER_QUEUE_H_
