// ModelHandlers: handles the HTTP calls about the served models: /v1/models and /v1/models/MODEL.
#ifndef TIDEPOOL_SERVICE_HTTP_MODEL_HANDLERS_H_
#define TIDEPOOL_SERVICE_HTTP_MODEL_HANDLERS_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "service/front/front_core.h"
#include "service/http/http_exchange.h"
#include "service/http/json.h"
#include "service/http/route_table.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Describes a model in vLLM's format. `id` is its name or an alias of it. The field `root` is the
// model's own name. `created` is in Unix seconds.
Json ModelJson(const v1::Model& model, absl::string_view id, int64_t created);
// Lists the aliases of each model, or the model's name if it has no aliases. Lists each id once.
Json ModelListJson(const v1::ListModelsResponse& response, int64_t created);

// Thread-safe.
class ModelHandlers {
 public:
  // `core` must outlive the exchanges. `created` is reported as the creation time of all models, in
  // Unix seconds.
  ModelHandlers(FrontCore* core, int64_t created) : core_(core), created_(created) {}

  // Adds the routes of these calls. Their handlers must not be called after this object is
  // destroyed.
  void AddTo(Routes* routes) const;

 private:
  void ListModels(std::shared_ptr<HttpExchange> exchange) const;
  void GetModel(const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) const;

  FrontCore* const core_;
  const int64_t created_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_MODEL_HANDLERS_H_
