#include "engine/grammar/schema/schema_document.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "kernels/base/json_watch.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::grammar {
namespace {

// Keywords whose value is a schema, a list of schemas, or an object of schemas.
constexpr absl::string_view kSchemas[] = {"additionalItems",
                                          "additionalProperties",
                                          "contains",
                                          "contentSchema",
                                          "else",
                                          "if",
                                          "items",
                                          "not",
                                          "propertyNames",
                                          "then",
                                          "unevaluatedItems",
                                          "unevaluatedProperties"};
constexpr absl::string_view kLists[] = {"allOf", "anyOf", "items", "oneOf", "prefixItems"};
constexpr absl::string_view kMaps[] = {
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"};

bool IsIn(absl::Span<const absl::string_view> list, absl::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string Escaped(absl::string_view key) {
  return absl::StrReplaceAll(key, {{"~", "~0"}, {"/", "~1"}});
}

std::string WithoutFragment(absl::string_view uri) {
  return std::string(uri.substr(0, uri.find('#')));
}

// Removes "." and ".." from a path.
std::string NormalPath(absl::string_view path) {
  std::vector<absl::string_view> parts;
  const std::vector<absl::string_view> all = absl::StrSplit(path, '/');
  for (size_t i = 0; i < all.size(); ++i) {
    const bool last = i + 1 == all.size();
    if (all[i] == "..") {
      if (parts.size() > 1) parts.pop_back();
    } else if (all[i] != ".") {
      parts.push_back(all[i]);
      continue;
    }
    if (last) parts.push_back("");
  }
  std::string result;
  for (size_t i = 0; i < parts.size(); ++i) absl::StrAppend(&result, i > 0 ? "/" : "", parts[i]);
  return result;
}

// Resolves a reference without a fragment (RFC 3986, section 5.2, for the usual schemes).
std::string ResolveUri(const std::string& base, const std::string& ref) {
  if (ref.empty()) return base;
  const size_t colon = ref.find(':');
  if (colon != std::string::npos && ref.find('/') > colon) return ref;  // has a scheme
  const size_t scheme = base.find("://");
  const size_t path = scheme == std::string::npos ? 0 : base.find('/', scheme + 3);
  const std::string authority = base.substr(0, std::min(path, base.size()));
  if (absl::StartsWith(ref, "//") && scheme != std::string::npos) {
    return base.substr(0, scheme + 1) + ref;
  }
  if (absl::StartsWith(ref, "/")) return authority + NormalPath(ref);
  const std::string own = path == std::string::npos ? "/" : base.substr(path);
  const size_t slash = own.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : own.substr(0, slash + 1);
  return authority + NormalPath(folder + ref);
}

absl::StatusOr<std::string> UnescapePercent(absl::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size() || !absl::ascii_isxdigit(text[i + 1]) ||
        !absl::ascii_isxdigit(text[i + 2])) {
      return absl::InvalidArgumentError("a % escape is wrong");
    }
    result += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
    i += 2;
  }
  return result;
}

// Returns null if there is no such value.
const Json* Follow(const Json* value, absl::string_view pointer) {
  if (pointer.empty()) return value;
  if (pointer[0] != '/') return nullptr;
  for (const absl::string_view part : absl::StrSplit(pointer.substr(1), '/')) {
    const std::string key = absl::StrReplaceAll(part, {{"~1", "/"}, {"~0", "~"}});
    int64_t index = 0;
    if (value->is_object() && value->contains(key)) {
      value = &value->at(key);
    } else if (value->is_array() && absl::SimpleAtoi(key, &index) && index >= 0 &&
               index < static_cast<int64_t>(value->size())) {
      value = &value->at(static_cast<size_t>(index));
    } else {
      return nullptr;
    }
  }
  return value;
}

}  // namespace

absl::Status SchemaError(absl::string_view pointer, absl::string_view keyword,
                         absl::string_view reason) {
  constexpr size_t kMaxCharacters = 1000;
  std::string place = absl::StrCat("\"", base::EscapeControls(pointer, kMaxCharacters), "\"");
  if (!keyword.empty()) {
    absl::StrAppend(&place, ", keyword \"", base::EscapeControls(keyword, kMaxCharacters), "\"");
  }
  return absl::InvalidArgumentError(absl::StrCat("JSON schema, at ", place, ": ", reason));
}

absl::StatusOr<std::unique_ptr<SchemaDocument>> SchemaDocument::Parse(absl::string_view text) {
  if (text.size() > kMaxSchemaBytes) {
    return SchemaError(
        "", "",
        absl::StrCat("the schema has ", text.size(), " bytes; the limit is ", kMaxSchemaBytes));
  }
  base::JsonWatch<Json> watch({.max_depth = kMaxSchemaDepth});
  auto document = std::unique_ptr<SchemaDocument>(new SchemaDocument);
  document->root_ =
      Json::parse(text.begin(), text.end(), watch.callback(), /*allow_exceptions=*/false);
  if (!watch.fault().empty()) {
    return SchemaError("", "", absl::StrCat("the schema ", watch.fault()));
  }
  const Json& root = document->root_;
  if (root.is_discarded()) return SchemaError("", "", "the schema is not valid JSON");
  if (!root.is_object() && !root.is_boolean()) {
    return SchemaError("", "",
                       absl::StrCat("a schema is an object or a boolean, not ",
                                    root.is_array() ? "an " : "a ", root.type_name()));
  }
  if (root.is_object() && root.contains("$schema") && root["$schema"].is_string()) {
    const std::string& dialect = root["$schema"].get_ref<const std::string&>();
    document->dialect_ = Dialect::kSince2019;
    for (const absl::string_view old : {"draft-03", "draft-04", "draft-06", "draft-07"}) {
      if (absl::StrContains(dialect, old)) document->dialect_ = Dialect::kUpTo7;
    }
  }
  document->Scan(root, "", "");
  return document;
}

void SchemaDocument::Scan(const Json& schema, const std::string& pointer, std::string base) {
  if (pointer.empty()) by_uri_.emplace("", &schema);
  if (!schema.is_object()) {
    places_[&schema] = {pointer, std::move(base)};
    return;
  }
  const auto id = schema.find("$id");
  if (id != schema.end() && id->is_string() && !(ref_is_alone() && schema.contains("$ref"))) {
    const std::string& uri = id->get_ref<const std::string&>();
    if (absl::StartsWith(uri, "#")) {
      by_uri_.emplace(absl::StrCat(base, uri), &schema);
    } else {
      base = ResolveUri(base, WithoutFragment(uri));
      by_uri_.emplace(base, &schema);
    }
  }
  for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
    const auto anchor = schema.find(keyword);
    if (anchor == schema.end() || !anchor->is_string()) continue;
    const std::string& name = anchor->get_ref<const std::string&>();
    by_uri_.emplace(absl::StrCat(base, "#", name), &schema);
    if (keyword[1] == 'd') ++dynamic_anchors_[name];
  }
  const Place place = {pointer, base};
  places_[&schema] = place;
  for (const auto& [keyword, value] : schema.items()) ScanKeyword(keyword, value, place);
}

void SchemaDocument::ScanKeyword(const std::string& keyword, const Json& value,
                                 const Place& place) {
  const std::string pointer = absl::StrCat(place.pointer, "/", Escaped(keyword));
  if (value.is_array() && IsIn(kLists, keyword)) {
    for (size_t i = 0; i < value.size(); ++i) {
      Scan(value[i], absl::StrCat(pointer, "/", i), place.base);
    }
  } else if (value.is_object() && IsIn(kMaps, keyword)) {
    for (const auto& [key, schema] : value.items()) {
      Scan(schema, absl::StrCat(pointer, "/", Escaped(key)), place.base);
    }
  } else if (IsIn(kSchemas, keyword)) {
    Scan(value, pointer, place.base);
  }
}

std::string SchemaDocument::PointerOf(const Json* schema) const {
  const auto found = places_.find(schema);
  return found == places_.end() ? "" : found->second.pointer;
}

int SchemaDocument::DynamicAnchors(const std::string& name) const {
  const auto found = dynamic_anchors_.find(name);
  return found == dynamic_anchors_.end() ? 0 : found->second;
}

absl::StatusOr<const Json*> SchemaDocument::Resolve(const Json* schema, const std::string& ref) {
  const Place from = places_.at(schema);
  const auto refuse = [&](absl::string_view reason) {
    return SchemaError(from.pointer, "$ref", absl::StrCat(base::Quoted(ref), " ", reason));
  };
  const size_t hash = ref.find('#');
  const std::string uri = ResolveUri(from.base, WithoutFragment(ref));
  const absl::StatusOr<std::string> fragment =
      UnescapePercent(hash == std::string::npos ? "" : absl::string_view(ref).substr(hash + 1));
  if (!fragment.ok()) return refuse(fragment.status().message());
  if (!fragment->empty() && (*fragment)[0] != '/') {
    const auto found = by_uri_.find(absl::StrCat(uri, "#", *fragment));
    if (found == by_uri_.end()) return refuse("is not an anchor of this schema");
    return found->second;
  }
  const auto resource = by_uri_.find(uri);
  if (resource == by_uri_.end()) {
    return refuse("is outside of this schema; copy its definition into $defs");
  }
  const Json* target = Follow(resource->second, *fragment);
  if (target == nullptr) return refuse("does not exist in this schema");
  if (!places_.contains(target)) {
    const Place root = places_.at(resource->second);
    Scan(*target, absl::StrCat(root.pointer, *fragment), root.base);
  }
  return target;
}

}  // namespace tidepool::engine::grammar
