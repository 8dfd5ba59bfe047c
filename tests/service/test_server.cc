#include "tests/service/test_server.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::service {
namespace {

constexpr char kTemplate[] =
    "{%- for message in messages -%}"
    "{{- '<|start|>' + message.role + '\n' -}}"
    "{%- if message.role == 'assistant' and '</think>' in message.content -%}"
    "{{- message.content.split('</think>')[-1] -}}"
    "{%- else -%}{{- message.content -}}{%- endif -%}"
    "{{- '<|end_of_text|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|start|>assistant\n' -}}{%- endif -%}";

}  // namespace

TestEngine::TestEngine(const TestEngineOptions& options) : tokenizer(fakes::MakeByteTokenizer()) {
  const std::string cache_seed = options.digest + " f32";
  auto made = engine::Engine::Create(&model, tokenizer.get(), &base::Clock::Real(),
                                     {.context_length = options.context,
                                      .kv_memory_bytes = 16 << 20,
                                      .max_queued = options.max_queued,
                                      .cache_seed = cache_seed});
  CHECK(made.ok()) << made.status().ToString();
  engine = *std::move(made);
  worker.name = options.name;
  worker.aliases = options.aliases;
  worker.architecture = "scripted";
  worker.digest = options.digest;
  worker.numerics_id = "scripted-f32";
  worker.context_length = options.context;
  worker.cache_seed = cache_seed;
  worker.tokenizer = tokenizer.get();
  worker.grammars = std::make_shared<engine::grammar::GrammarCache>(tokenizer.get());
  worker.tool_syntax = options.tool_syntax;
  if (!options.thinks_after.empty()) {
    worker.reasoning.set_begin(options.thinks_after);
    worker.reasoning.set_end("</think>");
  }
  worker.chat_template = engine::ChatTemplate::Parse(kTemplate);
  CHECK(worker.chat_template.ok()) << worker.chat_template.status().ToString();
}

}  // namespace tidepool::service
