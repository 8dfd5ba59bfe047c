#include "service/http/model_handlers.h"

#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/base/utf8.h"
#include "service/http/api_response.h"

namespace tidepool::service {

Json ModelJson(const v1::Model& model, absl::string_view id, int64_t created) {
  return {{"id", std::string(id)},
          {"object", "model"},
          {"created", created},
          {"owned_by", "tidepool"},
          {"root", model.name()},
          {"parent", Json()},
          {"max_model_len", model.context_length()}};
}

Json ModelListJson(const v1::ListModelsResponse& response, int64_t created) {
  Json list = Json::array();
  std::set<std::string> ids;
  for (const v1::Model& model : response.models()) {
    if (model.aliases().empty() && ids.insert(model.name()).second) {
      list.push_back(ModelJson(model, model.name(), created));
    }
    for (const std::string& alias : model.aliases()) {
      if (ids.insert(alias).second) list.push_back(ModelJson(model, alias, created));
    }
  }
  return {{"object", "list"}, {"data", std::move(list)}};
}

void ModelHandlers::AddTo(Routes* routes) const {
  routes->push_back({{.path = "/v1/models", .method = "GET", .summary = "List the served models."},
                     [this](const HttpRequest&, std::shared_ptr<HttpExchange> exchange) {
                       ListModels(std::move(exchange));
                     }});
  routes->push_back({{.path = "/v1/models/", .method = "GET", .summary = "Describe one model."},
                     [this](const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) {
                       GetModel(request, std::move(exchange));
                     }});
}

void ModelHandlers::ListModels(std::shared_ptr<HttpExchange> exchange) const {
  core_->loop()->Post([core = core_, created = created_, exchange = std::move(exchange)] {
    core->ListModels([created, exchange](const absl::StatusOr<v1::ListModelsResponse>& response) {
      if (!response.ok()) return AnswerLater(exchange, ErrorResponse(response.status()));
      AnswerLater(exchange, JsonResponse(ModelListJson(*response, created)));
    });
  });
}

void ModelHandlers::GetModel(const HttpRequest& request,
                             std::shared_ptr<HttpExchange> exchange) const {
  v1::GetModelRequest asked;
  absl::string_view name = absl::StripPrefix(request.head.path, "/v1/models/");
  if (name.size() > 1) absl::ConsumeSuffix(&name, "/");
  asked.set_model(std::string(name));
  if (const absl::Status utf8 = base::CheckUtf8(asked.model(), "the model's name"); !utf8.ok()) {
    return exchange->Answer(ErrorResponse(utf8));
  }
  core_->loop()->Post([core = core_, created = created_, asked, exchange = std::move(exchange)] {
    core->GetModel(asked, [created, asked, exchange](const absl::StatusOr<v1::Model>& model) {
      AnswerLater(exchange, model.ok() ? JsonResponse(ModelJson(*model, asked.model(), created))
                                       : ErrorResponse(model.status()));
    });
  });
}

}  // namespace tidepool::service
