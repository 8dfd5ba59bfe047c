// libFuzzer target: any bytes as a message of the protocol. It runs all code that handles the
// message before the engine. The first byte selects the message.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:request_fuzz -- -max_total_time=60
#include <google/protobuf/stubs/logging.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/chat_template/chat_template.h"
#include "kernels/base/check.h"
#include "service/front/convert_sessions.h"
#include "service/grpc/check_request.h"
#include "service/grpc/convert.h"
#include "service/grpc/wire_check.h"
#include "service/worker/prompt.h"
#include "service/worker/worker_model.h"
#include "tests/fakes/byte_tokenizer.h"

namespace {

using tidepool::service::WorkerModel;
namespace v1 = tidepool::v1;
namespace worker = tidepool::worker::v1;
namespace service = tidepool::service;

constexpr char kTemplate[] =
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c | tojson }}{% endfor %}<|end_of_text|>{% endfor %}{% if tools %}{{ tools | tojson }}"
    "{% endif %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}{{ extra }}";

void CheckMessage(const absl::Status& status) {
  if (status.ok()) return;
  CHECK(!status.message().empty());
  CHECK(!absl::StrContains(status.message(), "\n"));
}

const WorkerModel& Model() {
  static const WorkerModel* const model = [] {
    auto* made = new WorkerModel();
    made->name = "fuzz";
    made->context_length = 512;
    made->tokenizer = tidepool::fakes::MakeByteTokenizer().release();
    made->chat_template = tidepool::engine::ChatTemplate::Parse(kTemplate);
    CHECK(made->chat_template.ok());
    return made;
  }();
  return *model;
}

// Returns false if the bytes are not this message. Then the error message was checked.
template <typename Message>
bool Parse(absl::string_view bytes, Message* message) {
  if (message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return true;
  const absl::Status status = service::ExplainBadMessage(bytes, *Message::descriptor());
  CHECK(!status.ok());
  CheckMessage(status);
  return false;
}

void TryGenerate(const v1::GenerateRequest& request) {
  CheckMessage(service::CheckGenerateRequest(request));
  CheckMessage(service::CheckSessionId(request.session_id()));
  v1::Sampling sampling;
  service::ToProto(service::FromProto(request.sampling(), {}), &sampling);
  v1::Stopping stopping;
  service::ToProto(service::FromProto(request.stopping()), &stopping);
}

void TryPrepare(const worker::PrepareRequest& request) {
  // The front checks requests before it sends them to a worker.
  if (!service::CheckGenerateRequest(request.request()).ok()) return;
  const auto prepared = service::Prepare(request, {.model = &Model(),
                                                   .now = absl::FromUnixSeconds(1'700'000'000),
                                                   .drawn_seed = 7,
                                                   .salt = "salt"});
  if (!prepared.ok()) {
    CheckMessage(prepared.status());
    return;
  }
  CHECK(prepared->session_tokens_kept() <= request.session().token_ids_size());
  CHECK(prepared->token_ids_size() < Model().context_length);
}

void TryStart(const worker::Start& start) {
  const auto request = service::FromProto(start, absl::InfiniteDuration());
  CheckMessage(request.status());
}

void TryChatMessage(const v1::ChatMessage& message) {
  v1::ChatMessage back;
  service::ToProto(service::FromProto(message), &back);
  CHECK(back.role() == message.role());
  CHECK(back.content() == message.content());
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  google::protobuf::SetLogHandler(nullptr);  // it prints every message that does not parse
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'g':
      if (v1::GenerateRequest request; Parse(bytes, &request)) TryGenerate(request);
      break;
    case 'p':
      if (worker::PrepareRequest request; Parse(bytes, &request)) TryPrepare(request);
      break;
    case 's':
      if (worker::Start start; Parse(bytes, &start)) TryStart(start);
      break;
    case 'm':
      if (v1::ChatMessage message; Parse(bytes, &message)) TryChatMessage(message);
      break;
    default:
      break;
  }
  return 0;
}
