#include "service/front/served_models.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "service/base/model_identity.h"

namespace tidepool::service {
namespace {

bool HasAlias(const v1::Model& model, absl::string_view name) {
  const auto& aliases = model.aliases();
  return std::find(aliases.begin(), aliases.end(), name) != aliases.end();
}

// Returns all names by which a model can be selected, each once. Aliases come first.
std::vector<absl::string_view> NamesOf(const std::vector<v1::Model>& models) {
  std::vector<absl::string_view> names;
  const auto add = [&names](absl::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const v1::Model& model : models) {
    for (const std::string& alias : model.aliases()) add(alias);
    add(model.name());
  }
  return names;
}

}  // namespace

std::vector<v1::Model> ServedModels(const WorkerSet& workers) {
  std::vector<v1::Model> models;
  for (const auto& member : workers.members()) {
    if (!member->heard || member->retired) continue;
    const auto known = std::find_if(models.begin(), models.end(), [&](const v1::Model& model) {
      return model.name() == member->model.name() &&
             SameModel(ModelIdentity(model), ModelIdentity(member->model));
    });
    if (known == models.end()) {
      models.push_back(member->model);
      continue;
    }
    if (known->content_digest().empty()) {
      known->set_content_digest(member->model.content_digest());
    }
    for (const std::string& alias : member->model.aliases()) {
      if (!HasAlias(*known, alias)) known->add_aliases(alias);
    }
  }
  return models;
}

absl::StatusOr<v1::Model> FindModel(const WorkerSet& workers, absl::string_view name) {
  std::vector<v1::Model> models = ServedModels(workers);
  if (models.empty()) {
    return absl::UnavailableError("no worker has responded yet; start a worker, or retry later");
  }
  const bool one_name = std::all_of(models.begin(), models.end(), [&](const v1::Model& model) {
    return model.name() == models[0].name();
  });
  if (name.empty() && one_name) return std::move(models[0]);
  for (v1::Model& model : models) {
    if (model.name() == name) return std::move(model);
  }
  for (v1::Model& model : models) {
    if (HasAlias(model, name)) return std::move(model);
  }
  const std::string served = absl::StrJoin(NamesOf(models), ", ");
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model is unset, and several models are served; set it to one of: ", served));
  }
  return absl::NotFoundError(absl::StrCat("model '", name, "' is not served; served: ", served));
}

absl::StatusOr<v1::Model> FindModel(const WorkerSet& workers, absl::string_view name,
                                    absl::string_view digest) {
  for (v1::Model& model : ServedModels(workers)) {
    if (model.name() == name && SameModel(ModelIdentity(model), digest)) return std::move(model);
  }
  return FindModel(workers, name);
}

absl::StatusOr<PickedWorker> PickAnyWorker(const WorkerSet& workers, absl::string_view name) {
  ASSIGN_OR_RETURN(const v1::Model model, FindModel(workers, name));
  return workers.Pick({.model_digest = ModelIdentity(model)}, /*session_id=*/"");
}

}  // namespace tidepool::service
