// A fixture for tests of requests with a request_id.
#ifndef TIDEPOOL_TESTS_SERVICE_FRONT_IDEMPOTENCY_CACHE_FIXTURE_H_
#define TIDEPOOL_TESTS_SERVICE_FRONT_IDEMPOTENCY_CACHE_FIXTURE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "tests/service/front/front_fixture.h"

namespace tidepool::service {

class IdempotencyCacheTest : public FrontTest {
 protected:
  static v1::GenerateRequest Named(v1::GenerateRequest request = Text(),
                                   std::optional<uint64_t> resume_after = std::nullopt) {
    request.set_request_id("mine");
    if (resume_after.has_value()) request.set_resume_after(*resume_after);
    return request;
  }

  // The client receives all messages that are waiting.
  void TakeAll(Client* client) {
    loop_.RunAll();
    while (client->writing) {
      client->Take();
      loop_.RunAll();
    }
  }

  static std::string TextOf(const Client& client) {
    std::string text;
    for (const auto& message : client.messages) text += message.text();
    return text;
  }

  // Returns the last run of the worker.
  static PuppetLink::Run_& LastRun(PuppetLink* worker) { return *worker->runs.back(); }
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_FRONT_IDEMPOTENCY_CACHE_FIXTURE_H_
