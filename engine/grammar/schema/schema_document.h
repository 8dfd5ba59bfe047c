// SchemaDocument: a JSON schema with its subschemas' places and identifiers.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SCHEMA_DOCUMENT_H_
#define TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SCHEMA_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace tidepool::engine::grammar {

// Keeps the order of properties.
using Json = nlohmann::ordered_json;

inline constexpr size_t kMaxSchemaBytes = 1 << 20;
inline constexpr int kMaxSchemaDepth = 64;

// The drafts that the schema may be written for, according to its $schema.
enum class Dialect : uint8_t {
  kUnknown,  // no $schema: read as draft 2020-12, with the keywords of older drafts
  kUpTo7,
  kSince2019,
};

// Thread-safe: immutable after Parse, except for Resolve.
class SchemaDocument {
 public:
  // Returns INVALID_ARGUMENT if the text is larger than kMaxSchemaBytes, nested deeper than
  // kMaxSchemaDepth, not JSON, not an object or boolean, or repeats a key in an object.
  static absl::StatusOr<std::unique_ptr<SchemaDocument>> Parse(absl::string_view text);

  const Json& root() const { return root_; }
  // Whether $ref replaces the keywords beside it, as before draft 2019-09.
  bool ref_is_alone() const { return dialect_ == Dialect::kUpTo7; }
  Dialect dialect() const { return dialect_; }

  // Returns the JSON pointer of a subschema, such as "/properties/a"; "" for the root.
  std::string PointerOf(const Json* schema) const;

  // Returns the schema that the reference `ref` in `schema` refers to. Returns INVALID_ARGUMENT if
  // the result is not in this document.
  absl::StatusOr<const Json*> Resolve(const Json* schema, const std::string& ref);
  // Returns the number of $dynamicAnchor keywords with this name.
  int DynamicAnchors(const std::string& name) const;

 private:
  struct Place {
    std::string pointer;
    std::string base;  // the URI that references are relative to
  };

  SchemaDocument() = default;
  void Scan(const Json& schema, const std::string& pointer, std::string base);
  void ScanKeyword(const std::string& keyword, const Json& value, const Place& place);

  Json root_;
  Dialect dialect_ = Dialect::kUnknown;
  absl::flat_hash_map<const Json*, Place> places_;
  std::map<std::string, const Json*> by_uri_;  // also with the fragments of anchors
  std::map<std::string, int> dynamic_anchors_;
};

// Returns INVALID_ARGUMENT with the place, the keyword, the reason and the remedy.
absl::Status SchemaError(absl::string_view pointer, absl::string_view keyword,
                         absl::string_view reason);

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SCHEMA_DOCUMENT_H_
