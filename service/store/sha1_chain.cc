#include "service/store/sha1_chain.h"

#include <openssl/evp.h>

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tidepool::service {
namespace {

constexpr size_t kBlock = 256;

}  // namespace

std::string Sha1Hex(absl::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash;
  unsigned int size = 0;
  CHECK_EQ(EVP_Digest(bytes.data(), bytes.size(), hash.data(), &size, EVP_sha1(), nullptr), 1);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(hash.data()), size));
}

std::string Sha1Chain(absl::string_view bytes) {
  std::string state;
  for (size_t at = 0; at + kBlock <= bytes.size(); at += kBlock) {
    state = Sha1Hex(absl::StrCat(state, bytes.substr(at, kBlock)));
  }
  return state;
}

std::string Sha1Digest(absl::string_view bytes) {
  const absl::string_view rest = bytes.substr(bytes.size() - bytes.size() % kBlock);
  return Sha1Hex(absl::StrCat(Sha1Chain(bytes), rest));
}

std::string PackValues(std::initializer_list<absl::string_view> values) {
  std::string packed;
  for (const absl::string_view value : values) absl::StrAppend(&packed, value.size(), ":", value);
  return packed;
}

}  // namespace tidepool::service
