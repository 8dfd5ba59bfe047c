// Serialises messages to compute digests: equal messages have equal bytes.
#ifndef TIDEPOOL_SERVICE_FRONT_MESSAGE_BYTES_H_
#define TIDEPOOL_SERVICE_FRONT_MESSAGE_BYTES_H_

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message_lite.h>

#include <string>

namespace tidepool::service {

// The entries of maps are written in the order of their keys.
inline std::string MessageBytes(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_MESSAGE_BYTES_H_
