#include "service/http/choice_generations.h"

#include "absl/strings/str_cat.h"
#include "service/front/served_models.h"
#include "service/http/http_error.h"

namespace tidepool::service {

std::vector<GenerationInput> InputsOf(const OpenAiRequest& request, const HttpAsker& asker,
                                      const std::string& id) {
  const size_t count = request.choices.size();
  const RequestKey& key = asker.key;
  // If the client sent no trace, begin one that all choices of the request share.
  const std::optional<TraceContext> trace =
      asker.trace.has_value() || count == 1 ? asker.trace : BeginSpan(std::nullopt).context;
  std::vector<GenerationInput> inputs;
  inputs.reserve(count);
  const std::shared_ptr<const ToolSchemas> tools = ToolsOf(request.choices[0]);
  for (size_t i = 0; i < count; ++i) {
    GenerationInput& input =
        inputs.emplace_back(GenerationInput{.request = request.choices[i],
                                            .own_id = count == 1 ? id : absl::StrCat(id, "-", i),
                                            .principal = asker.caller.principal,
                                            .role = asker.caller.role,
                                            .limits = asker.caller.limits,
                                            .span = BeginSpan(trace),
                                            .deadline = absl::InfiniteDuration(),
                                            .checked = absl::OkStatus(),
                                            .tools = tools});
    if (key.id.empty()) continue;
    input.request.set_request_id(key.ChoiceId(i, count));
    // The front must also send the part of the response that the client already has, because later
    // events depend on the whole response. EventStream does not send the earlier events again.
    input.replay = true;
    if (key.resume.has_value()) input.request.set_resume_after(key.resume->tokens(i));
    input.digests = DigestsOf(input.request);
    if (count > 1) absl::StrAppend(&input.digests->body, " ", i, " of ", count);
  }
  return inputs;
}

ChoiceGenerations::ChoiceGenerations(FrontCore* core, std::vector<GenerationInput> inputs,
                                     bool tools)
    : core_(core),
      model_(inputs[0].request.model()),
      tools_(tools),
      inputs_(std::move(inputs)),
      choices_(inputs_.size()) {
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].all = this;
    choices_[i].index = static_cast<int64_t>(i);
  }
}

void ChoiceGenerations::Begin(const std::shared_ptr<Listener>& listener) {
  if (cancelled_) return;
  if (tools_) {
    const absl::StatusOr<ServedModel> model = FindServedModel();
    if (!model.ok()) return listener->OnRefused(model.status());
  }
  listener_ = listener;
  open_ = static_cast<int64_t>(choices_.size());
  std::vector<GenerationInput> inputs = std::exchange(inputs_, {});
  // A generation that is refused ends during Generate. Then the parameter `listener` keeps this
  // object alive.
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].generation = core_->Generate(std::move(inputs[i]), &choices_[i]);
  }
}

void ChoiceGenerations::OnWritten(int64_t choice) {
  if (choices_[choice].generation != nullptr) choices_[choice].generation->OnWritten();
}

void ChoiceGenerations::Cancel(const absl::Status& why) {
  if (std::exchange(cancelled_, true)) return;
  const auto keep = listener_;
  for (Choice& choice : choices_) {
    if (choice.generation != nullptr && !choice.finished) choice.generation->Cancel(why);
  }
}

void ChoiceGenerations::OnWrite(int64_t index, v1::GenerateResponse message) {
  if (message.position() > 0) {
    return listener_->OnMessage(index, std::nullopt, std::move(message));
  }
  // This normally succeeds, because the worker has reported its model before the first message.
  absl::StatusOr<ServedModel> model = FindServedModel();
  if (!model.ok()) return listener_->OnRefused(model.status());
  listener_->OnMessage(index, *std::move(model), std::move(message));
}

void ChoiceGenerations::OnFinish(int64_t index, absl::Status status) {
  choices_[index].finished = true;
  listener_->OnFinish(index, std::move(status));
  if (--open_ == 0) listener_.reset();
}

absl::StatusOr<ServedModel> ChoiceGenerations::FindServedModel() const {
  ServedModel served = {.name = model_};
  const absl::StatusOr<v1::Model> model = FindModel(*core_->workers(), model_);
  if (!model.ok()) {
    // No worker serves the model. The generation waits for one and reports errors itself.
    return served;
  }
  if (tools_ && model->tool_syntax() == v1::TOOL_SYNTAX_UNSPECIFIED) {
    return FieldError("tools",
                      absl::StrCat("has no effect: the chat template of model '", model->name(),
                                   "' does not support them; leave it out"));
  }
  served.name = model->aliases().empty() ? model->name() : model->aliases(0);
  served.has_experts = model->experts() > 0;
  served.has_reasoning = model->has_reasoning();
  return served;
}

}  // namespace tidepool::service
