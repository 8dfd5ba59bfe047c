#include "service/grpc/wire_check.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"

namespace tidepool::service {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// The depth limit of protobuf's parser.
constexpr int kMaxDepth = 100;

// Returns the error of the first string field that is not valid UTF-8. Returns OK if all strings
// are valid, or if damaged bytes come before the first invalid string.
absl::Status FindBadString(absl::string_view bytes, const Descriptor& type,
                           const std::string& prefix, int depth) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  while (const uint32_t tag = input.ReadTag()) {
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const bool has_bytes =
        WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (!has_bytes) {
      if (!WireFormatLite::SkipField(&input, tag)) return absl::OkStatus();
      continue;
    }
    uint32_t size = 0;
    if (!input.ReadVarint32(&size)) return absl::OkStatus();
    const size_t begin = input.CurrentPosition();
    if (size > bytes.size() - begin || !input.Skip(static_cast<int>(size))) return absl::OkStatus();
    if (field == nullptr) continue;
    const absl::string_view value = bytes.substr(begin, size);
    const std::string name = absl::StrCat(prefix, std::string(field->name()));
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      if (absl::Status status = base::CheckUtf8(value, name); !status.ok()) return status;
    } else if (field->type() == FieldDescriptor::TYPE_MESSAGE && depth < kMaxDepth) {
      absl::Status status = FindBadString(value, *field->message_type(), name + ".", depth + 1);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ExplainBadMessage(absl::string_view bytes, const Descriptor& type) {
  absl::Status status = FindBadString(bytes, type, "", 0);
  if (!status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("the request is damaged: it is not a ", std::string(type.full_name())));
}

}  // namespace tidepool::service
