#include "service/http/constraint_fields.h"

#include <optional>
#include <string>

#include "service/http/json.h"

namespace tidepool::service {
namespace {

constexpr char kAnyObject[] = R"({"type":"object"})";

// Sets the constraint. Reports an error if the request has a second constraint.
class ConstraintWriter {
 public:
  explicit ConstraintWriter(v1::GenerateRequest* out) : out_(*out) {}

  void Schema(JsonFields* fields, absl::string_view name, const Json& schema) {
    if (!schema.is_object() && !schema.is_boolean()) {
      return fields->Fail(name, "must be a JSON schema: an object");
    }
    if (Only(fields, name)) out_.set_json_schema(DumpJson(schema));
  }
  void AnyObject(JsonFields* fields, absl::string_view name) {
    if (Only(fields, name)) out_.set_json_schema(kAnyObject);
  }
  void Regex(JsonFields* fields, absl::string_view name, const std::string& regex) {
    if (Only(fields, name)) out_.set_regex(regex);
  }
  void Grammar(JsonFields* fields, absl::string_view name, const std::string& grammar) {
    if (Only(fields, name)) out_.set_grammar(grammar);
  }
  void Choice(JsonFields* fields, absl::string_view name, const Json& list) {
    if (!Only(fields, name)) return;
    v1::Choices* choices = out_.mutable_choice();
    for (const Json& text : list) {
      if (!text.is_string()) return fields->Fail(name, "must be an array of strings");
      choices->add_texts(text.get<std::string>());
    }
  }
  void Whitespace(const std::string& pattern) { out_.set_whitespace_pattern(pattern); }
  bool has_schema() const { return out_.has_json_schema(); }

 private:
  bool Only(JsonFields* fields, absl::string_view name) {
    if (out_.constraint_case() == v1::GenerateRequest::CONSTRAINT_NOT_SET) return true;
    fields->Fail(name,
                 "is a second constraint; send one of response_format, structured_outputs, "
                 "grammar and json_schema");
    return false;
  }

  v1::GenerateRequest& out_;
};

void ReadResponseFormat(JsonFields* fields, ConstraintWriter* out) {
  const Json* format = fields->Object("response_format");
  if (format == nullptr) return;
  JsonFields inner = fields->Inside(*format, "response_format.");
  const std::string type = inner.String("type").value_or("");
  const Json* named = inner.Object("json_schema");
  const Json* plain = inner.Find("schema", {"object"});
  const Json* schema = nullptr;
  if (named != nullptr) {
    JsonFields fields_of_schema = inner.Inside(*named, "response_format.json_schema.");
    fields_of_schema.String("name");
    fields_of_schema.String("description");
    // The schema is always enforced. With `strict`, OpenAI accepts fewer schemas.
    fields_of_schema.Bool("strict");
    schema = fields_of_schema.Find("schema", {"object"});
    fields->Fail(fields_of_schema.Done());
  }
  if (type == "json_schema") {
    if (schema == nullptr) schema = plain;
    if (schema == nullptr) {
      inner.Fail("json_schema", "has no schema; set json_schema.schema");
    } else {
      out->Schema(&inner, "json_schema", *schema);
    }
  } else if (type == "json_object") {
    if (named != nullptr) inner.Fail("json_schema", "needs the type \"json_schema\"");
    // In llama.cpp, json_object may have a schema.
    if (plain != nullptr) {
      out->Schema(&inner, "schema", *plain);
    } else {
      out->AnyObject(&inner, "type");
    }
  } else if (type != "text") {
    inner.Fail("type", "must be \"text\", \"json_object\" or \"json_schema\"");
  }
  fields->Fail(inner.Done());
}

// Reads a schema (an object, true or false), or the JSON text of a schema.
void ReadJsonSchema(JsonFields* fields, absl::string_view name, ConstraintWriter* out) {
  const Json* value = fields->Find(name, {"object", "string", "boolean"});
  if (value == nullptr) return;
  if (!value->is_string()) return out->Schema(fields, name, *value);
  const absl::StatusOr<Json> parsed = ParseJsonText(value->get_ref<const std::string&>());
  if (!parsed.ok()) return fields->Fail(name, parsed.status().message());
  out->Schema(fields, name, *parsed);
}

void ReadStructuredOutputs(JsonFields* fields, ConstraintWriter* out) {
  const Json* outputs = fields->Object("structured_outputs");
  if (outputs == nullptr) return;
  JsonFields inner = fields->Inside(*outputs, "structured_outputs.");
  ReadJsonSchema(&inner, "json", out);
  if (const auto regex = inner.String("regex")) out->Regex(&inner, "regex", *regex);
  if (const Json* choice = inner.Array("choice")) out->Choice(&inner, "choice", *choice);
  if (const auto grammar = inner.String("grammar")) out->Grammar(&inner, "grammar", *grammar);
  if (inner.Bool("json_object").value_or(false)) out->AnyObject(&inner, "json_object");
  if (const auto pattern = inner.String("whitespace_pattern")) {
    if (out->has_schema()) {
      out->Whitespace(*pattern);
    } else {
      inner.Fail("whitespace_pattern", "needs json or json_object");
    }
  }
  inner.NotServed("structural_tag");
  inner.NotServed("disable_any_whitespace", false);
  inner.NotServed("disable_additional_properties", false);
  inner.Bool("disable_fallback");  // concerns only vLLM's backends
  fields->Fail(inner.Done());
}

}  // namespace

void ReadConstraint(JsonFields* fields, v1::GenerateRequest* base) {
  ConstraintWriter out(base);
  ReadResponseFormat(fields, &out);
  ReadStructuredOutputs(fields, &out);
  if (const auto grammar = fields->String("grammar")) out.Grammar(fields, "grammar", *grammar);
  ReadJsonSchema(fields, "json_schema", &out);
}

}  // namespace tidepool::service
