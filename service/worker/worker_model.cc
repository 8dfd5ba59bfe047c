#include "service/worker/worker_model.h"

namespace tidepool::service {

void ToProto(const WorkerModel& model, v1::Model* out) {
  out->set_name(model.name);
  out->mutable_aliases()->Assign(model.aliases.begin(), model.aliases.end());
  out->set_architecture(model.architecture);
  out->set_digest(model.digest);
  out->set_content_digest(model.content_digest);
  out->set_context_length(model.context_length);
  out->set_vocab_size(model.tokenizer->vocab_size());
  out->set_layers(model.layers);
  out->set_hidden_size(model.hidden_size);
  out->set_experts(model.experts);
  out->set_experts_used(model.experts_used);
  out->set_has_chat_template(model.chat_template.ok());
  out->set_weight_bytes(model.weight_bytes);
  out->set_numerics_id(model.numerics_id);
  out->set_tool_syntax(model.tool_syntax);
  if (!model.reasoning.begin().empty()) *out->mutable_reasoning() = model.reasoning;
}

}  // namespace tidepool::service
