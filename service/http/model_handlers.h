// ModelHandlers: HTTP calls about the served models: /v1/models and /v1/models/MODEL.
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

// Same format as vLLM: `root` is the model behind an alias. `created` is in Unix seconds.
Json ModelJson(const v1::Model& model, absl::string_view id, int64_t created);
// Lists each name once.
Json ModelListJson(const v1::ListModelsResponse& response, int64_t created);

// Thread-safe.
class ModelHandlers {
 public:
  // `core` outlives the exchanges. `created` is the creation time of all models, in Unix seconds.
  ModelHandlers(FrontCore* core, int64_t created) : core_(core), created_(created) {}

  // The handlers must not be called after this object is destroyed.
  void AddTo(Routes* routes) const;

 private:
  void ListModels(std::shared_ptr<HttpExchange> exchange) const;
  void GetModel(const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) const;

  FrontCore* const core_;
  const int64_t created_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_MODEL_HANDLERS_H_
