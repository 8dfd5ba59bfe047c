// A worker with the scripted model, for tests of the service over real gRPC.
#ifndef TIDEPOOL_TESTS_SERVICE_TEST_SERVER_H_
#define TIDEPOOL_TESTS_SERVICE_TEST_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/tokenizer/tokenizer.h"
#include "service/worker/worker_model.h"
#include "tests/fakes/scripted_model.h"

namespace tidepool::service {

struct TestEngineOptions {
  int64_t context = 2048;
  int64_t max_queued = 1024;
  std::string digest = "digest-1";
  std::string name = "scripted";
  std::vector<std::string> aliases;
  v1::ToolSyntax tool_syntax = v1::TOOL_SYNTAX_UNSPECIFIED;
  // Not empty: the responses have reasoning, between this marker and </think>.
  std::string thinks_after;
};

// What a server needs from an engine. Each byte is a token. For each message, the chat template
// writes <|start|>, the role, a line break, the content and <|end_of_text|>. It removes the <think>
// parts of responses.
struct TestEngine {
  explicit TestEngine(const TestEngineOptions& options = {});

  fakes::ScriptedModel model;
  std::unique_ptr<engine::Tokenizer> tokenizer;
  std::unique_ptr<engine::Engine> engine;
  WorkerModel worker;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_TEST_SERVER_H_
