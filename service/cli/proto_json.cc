#include "service/cli/proto_json.h"

#include <google/protobuf/descriptor.h>

namespace tidepool::service {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

Json RepeatedField(const Message& message, const FieldDescriptor* field) {
  const Reflection& r = *message.GetReflection();
  Json list = Json::array();
  for (int i = 0; i < r.FieldSize(message, field); ++i) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        list.push_back(r.GetRepeatedInt32(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        list.push_back(r.GetRepeatedInt64(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        list.push_back(r.GetRepeatedUInt32(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        list.push_back(r.GetRepeatedUInt64(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        list.push_back(r.GetRepeatedFloat(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        list.push_back(r.GetRepeatedDouble(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        list.push_back(r.GetRepeatedBool(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        list.push_back(r.GetRepeatedString(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        list.push_back(r.GetRepeatedEnum(message, field, i)->name());
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        list.push_back(ToJson(r.GetRepeatedMessage(message, field, i)));
        break;
    }
  }
  return list;
}

Json SingularField(const Message& message, const FieldDescriptor* field) {
  const Reflection& r = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return r.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return r.GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return r.GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return r.GetFloat(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r.GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_STRING:
      return r.GetString(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return r.GetEnum(message, field)->name();
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (!r.HasField(message, field)) return nullptr;
      return ToJson(r.GetMessage(message, field));
  }
  return nullptr;
}

}  // namespace

Json ToJson(const Message& message) {
  Json json = Json::object();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    json[field->name()] =
        field->is_repeated() ? RepeatedField(message, field) : SingularField(message, field);
  }
  return json;
}

}  // namespace tidepool::service
