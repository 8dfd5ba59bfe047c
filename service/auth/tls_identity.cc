#include "service/auth/tls_identity.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

template <auto function>
struct FreeBy {
  template <typename T>
  void operator()(T* object) const {
    function(object);
  }
};
using Bio = std::unique_ptr<BIO, FreeBy<BIO_free>>;
using Certificate = std::unique_ptr<X509, FreeBy<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;

absl::Status Fault(const std::string& path, absl::string_view what) {
  ERR_clear_error();  // Otherwise, the next OpenSSL call on this thread would seem to have failed.
  return absl::InvalidArgumentError(absl::StrCat(path, " ", what));
}

Bio Reader(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Returns all certificates. Returns none if the PEM text also contains anything else.
std::vector<Certificate> ReadCertificates(const std::string& pem) {
  std::vector<Certificate> certificates;
  const Bio bio = Reader(pem);
  while (true) {
    Certificate next(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (next == nullptr) break;
    certificates.push_back(std::move(next));
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) certificates.clear();
  return certificates;
}

absl::Time ExpiryOf(const Certificate& certificate) {
  std::tm utc = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &utc) != 1) {
    return absl::InfiniteFuture();
  }
  return absl::FromTM(utc, absl::UTCTimeZone());
}

// Makes OpenSSL reject keys that are encrypted, because nobody can enter the password.
int NoPassword(char*, int, int, void*) { return 0; }

absl::Status TrustCa(const TlsFiles& files, const TlsIdentity& identity, SSL_CTX* context) {
  const std::vector<Certificate> trusted = ReadCertificates(identity.ca_pem);
  if (trusted.empty()) return Fault(files.ca, "contains no CA certificates in PEM format");
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  for (const Certificate& ca : trusted) {
    // A file may contain the same certificate twice, so errors are ignored.
    X509_STORE_add_cert(store, ca.get());
    // Servers send the names of these CAs, so that clients can choose a certificate that the server
    // accepts.
    SSL_CTX_add_client_CA(context, ca.get());
  }
  ERR_clear_error();
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return absl::OkStatus();
}

absl::Status ShowCertificate(const TlsFiles& files, TlsIdentity* identity, SSL_CTX* context) {
  const std::vector<Certificate> chain = ReadCertificates(identity->certificate_pem);
  if (chain.empty()) return Fault(files.certificate, "contains no certificates in PEM format");
  const Bio bio = Reader(identity->key_pem);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return Fault(files.key, "contains no private key in PEM format without a password");
  }
  if (X509_check_private_key(chain[0].get(), key.get()) != 1) {
    return Fault(files.key, absl::StrCat("does not match the certificate in ", files.certificate));
  }
  bool well = SSL_CTX_use_certificate(context, chain[0].get()) == 1 &&
              SSL_CTX_use_PrivateKey(context, key.get()) == 1;
  for (size_t i = 1; i < chain.size(); ++i) {
    well = well && SSL_CTX_add1_chain_cert(context, chain[i].get()) == 1;
  }
  // This happens if, for example, the key is too short.
  if (!well) return Fault(files.certificate, "and its key are rejected by OpenSSL");
  identity->expires = ExpiryOf(chain[0]);
  return absl::OkStatus();
}

// `contents` has the order of the paths in WatchTlsFiles.
absl::StatusOr<TlsIdentity> MakeIdentity(const TlsFiles& files,
                                         const std::vector<std::string>& contents) {
  TlsIdentity identity;
  auto next = contents.begin();
  if (!files.certificate.empty()) {
    identity.certificate_pem = *next++;
    identity.key_pem = *next++;
  }
  if (!files.ca.empty()) identity.ca_pem = *next++;

  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  CHECK(context != nullptr) << "SSL_CTX_new";
  CHECK_EQ(SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION), 1);
  if (!files.ca.empty()) RETURN_IF_ERROR(TrustCa(files, identity, context.get()));
  if (files.certificate.empty()) return identity;
  RETURN_IF_ERROR(ShowCertificate(files, &identity, context.get()));
  // Do not allow TLS session resumption, because it would skip the check of the client's
  // certificate.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  identity.server_context = std::move(context);
  return identity;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WatchedFiles<TlsIdentity>>> WatchTlsFiles(const TlsFiles& files) {
  std::vector<std::string> paths;
  if (!files.certificate.empty()) paths = {files.certificate, files.key};
  if (!files.ca.empty()) paths.push_back(files.ca);
  return WatchedFiles<TlsIdentity>::Open(
      std::move(paths), kMaxPemBytes,
      [files](const std::vector<std::string>& contents) { return MakeIdentity(files, contents); });
}

}  // namespace tidepool::service
