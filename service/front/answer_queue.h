// AnswerQueue: messages of one answer on their way to its client, who takes one at a time; those of
// a session wait until the log has them.
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
  // A message ends where the answer is resumed after so many tokens; 0: nowhere.
  explicit AnswerQueue(int64_t resume_after) : resume_after_(resume_after) {}

  void Push(v1::GenerateResponse response, bool logged);
  // The first that was not logged is.
  void MarkLogged();
  // The next message, of all that has collected: a client that reads slowly gets it as one.
  // Nothing: there is none, or the one before it was not taken yet.
  std::optional<v1::GenerateResponse> Take();
  // The client has taken the message. Answers with its tokens, those of the prompt's report
  // included.
  int64_t OnTaken();
  // Whether the message that was taken last ends the answer.
  bool ended() const { return last_ && !under_way_; }
  void Clear() { waiting_.clear(); }

 private:
  struct Message {
    v1::GenerateResponse response;
    bool logged = false;
  };

  const int64_t resume_after_;
  std::deque<Message> waiting_;
  bool under_way_ = false;  // one was taken out, and not yet by the client
  int64_t tokens_ = 0;      // of that one
  bool last_ = false;       // it has a finish_reason
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_ANSWER_QUEUE_H_
