#include "service/http/field_recorder.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tidepool::service {

// What is known about one value.
struct FieldRecorder::Node {
  bool Is(absl::string_view type) const {
    return std::find(types.begin(), types.end(), type) != types.end();
  }

  std::vector<std::string> types;  // empty: any type
  bool not_empty = false;          // the value is a string or an array, and must not be empty
  std::optional<std::pair<int64_t, int64_t>> range;
  std::optional<Json> only;
  // numbers of the bodies in which the field was absent, or was reported missing
  std::set<int> absent, missed;
  // in the order in which they were read
  std::vector<std::pair<std::string, std::unique_ptr<Node>>> fields;
  std::unique_ptr<Node> item;  // describes the elements, if this is an array
};

namespace {

// Whether a value may be null. A null field means the same as a missing field. But an element of an
// array cannot be missing.
enum class Null : uint8_t { kAllowed, kRefused };

Json TypesJson(const std::vector<std::string>& types, Null null) {
  Json list = types;
  if (null == Null::kAllowed) list.push_back("null");
  return list;
}

}  // namespace

FieldRecorder::FieldRecorder() : root_(std::make_shared<Node>()) { root_->types = {"object"}; }

FieldRecorder::Node* FieldRecorder::At(absl::string_view path) {
  Node* node = root_.get();
  for (absl::string_view part : absl::StrSplit(path, '.')) {
    const size_t bracket = part.find('[');
    const std::string name(part.substr(0, bracket));
    const auto found = std::find_if(node->fields.begin(), node->fields.end(),
                                    [&name](const auto& field) { return field.first == name; });
    if (found == node->fields.end()) {
      node = node->fields.emplace_back(name, std::make_unique<Node>()).second.get();
    } else {
      node = found->second.get();
    }
    if (bracket == absl::string_view::npos) continue;
    if (node->item == nullptr) node->item = std::make_unique<Node>();
    node = node->item.get();
  }
  return node;
}

void FieldRecorder::OnField(const std::string& path, JsonTypes types, Presence presence) {
  Node* node = At(path);
  if (presence == Presence::kAbsent) node->absent.insert(body_);
  for (const char* type : types) {
    if (!node->Is(type)) node->types.emplace_back(type);
  }
}

void FieldRecorder::OnRange(const std::string& path, int64_t least, int64_t most) {
  At(path)->range = {least, most};
}

void FieldRecorder::OnNotEmpty(const std::string& path) { At(path)->not_empty = true; }

void FieldRecorder::OnNotServed(const std::string& path, const Json& harmless) {
  Node* node = At(path);
  if (node->types.empty()) node->only = harmless;
}

void FieldRecorder::OnMissing(const std::string& path) { At(path)->missed.insert(body_); }

Json FieldRecorder::Schema() const {
  const std::function<Json(const Node&, Null)> schema = [&schema](const Node& node, Null null) {
    Json json = Json::object();
    if (node.only.has_value()) {
      json["enum"] = Json::array({Json()});
      if (!node.only->is_null()) json["enum"].push_back(*node.only);
      json["description"] = "Other values are not supported.";
      return json;
    }
    if (!node.types.empty()) json["type"] = TypesJson(node.types, null);
    if (node.not_empty && node.Is("array")) json["minItems"] = 1;
    if (node.not_empty && node.Is("string")) json["minLength"] = 1;
    if (node.range.has_value()) {
      json["minimum"] = node.range->first;
      constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
      if (node.range->second != kAny) json["maximum"] = node.range->second;
    }
    if (node.item != nullptr) json["items"] = schema(*node.item, Null::kRefused);
    if (node.fields.empty()) return json;
    if (node.types.empty()) json["type"] = TypesJson({"object"}, null);
    Json required = Json::array();
    for (const auto& [name, field] : node.fields) {
      json["properties"][name] = schema(*field, Null::kAllowed);
      if (!field->missed.empty() && field->missed == field->absent) required.push_back(name);
    }
    if (!required.empty()) json["required"] = std::move(required);
    json["additionalProperties"] = false;
    return json;
  };
  Json json = schema(*root_, Null::kAllowed);
  json["type"] = "object";
  return json;
}

Json FieldRecorder::Probe() const {
  const std::function<Json(const Node&)> probe = [&probe](const Node& node) -> Json {
    if (node.Is("array") || node.item != nullptr) {
      return Json::array({node.item == nullptr ? Json::object() : probe(*node.item)});
    }
    if (!node.types.empty() && !node.Is("object")) return {};
    if (node.types.empty() && node.fields.empty()) return Json::object();
    Json object = Json::object();
    for (const auto& [name, field] : node.fields) {
      const bool deep = field->Is("array") || field->Is("object") || field->item != nullptr ||
                        !field->fields.empty();
      if (deep && !field->only.has_value()) object[name] = probe(*field);
    }
    return object;
  };
  return probe(*root_);
}

Json BodySchema(const std::function<void(const Json& body, FieldRecorder* recorder)>& parse) {
  FieldRecorder recorder;
  Json body = Json::object();
  while (true) {
    recorder.BeginBody();
    parse(body, &recorder);
    Json next = recorder.Probe();
    if (next == body) return recorder.Schema();
    body = std::move(next);
  }
}

}  // namespace tidepool::service
