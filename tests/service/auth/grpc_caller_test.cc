// StreamTerm, for streams that never end by themselves, over TLS and in plain text.
#include "service/auth/grpc_caller.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/fakes/manual_clock.h"
#include "tidepool/v1/admin.grpc.pb.h"

namespace tidepool::service {
namespace {

constexpr char kHost[] = "localhost";
constexpr absl::Duration kAge = absl::Hours(1);

std::string TakePem(BIO* memory) {
  char* text = nullptr;
  const long size = BIO_get_mem_data(memory, &text);
  std::string pem(text, static_cast<size_t>(size));
  BIO_free(memory);
  return pem;
}

// A self-signed certificate for kHost.
grpc::SslServerCredentialsOptions::PemKeyCertPair MakePair() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(kHost), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_set_pubkey(certificate, key);
  EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  BIO* certificate_pem = BIO_new(BIO_s_mem());
  BIO* key_pem = BIO_new(BIO_s_mem());
  EXPECT_EQ(PEM_write_bio_X509(certificate_pem, certificate), 1);
  EXPECT_EQ(PEM_write_bio_PrivateKey(key_pem, key, nullptr, nullptr, 0, nullptr, nullptr), 1);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return {.private_key = TakePem(key_pem), .cert_chain = TakePem(certificate_pem)};
}

// Lets a test look at the context of each call.
class Looker final : public v1::Admin::Service {
 public:
  grpc::Status GetStats(grpc::ServerContext* context, const v1::GetStatsRequest*,
                        v1::GetStatsResponse*) override {
    look(*context);
    return grpc::Status::OK;
  }
  std::function<void(const grpc::ServerContextBase& context)> look;
};

class StreamTermTest : public testing::Test {
 protected:
  // Makes a call over a connection with these credentials. The server looks at the call's context.
  void Look(const std::shared_ptr<grpc::ServerCredentials>& server_side,
            const std::shared_ptr<grpc::ChannelCredentials>& client_side) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", server_side, &port);
    builder.RegisterService(&service_);
    const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    ASSERT_NE(server, nullptr);
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(kHost);
    const auto stub = v1::Admin::NewStub(
        grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port), client_side, arguments));
    grpc::ClientContext context;
    v1::GetStatsResponse response;
    const grpc::Status status = stub->GetStats(&context, {}, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  fakes::ManualClock clock_;
  const Gate gate_ = {.max_connection_age = kAge, .clock = &clock_};
  Looker service_;
};

TEST_F(StreamTermTest, OverTlsAStreamEndsAtItsOwnAge) {
  const auto pair = MakePair();
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back(pair);
  int looked = 0;
  service_.look = [&](const grpc::ServerContextBase& context) {
    ++looked;
    // The age of the connection does not matter: the time counts from the beginning of the stream.
    clock_.Advance(kAge);
    const StreamTerm term(&context, gate_);
    clock_.Advance(kAge - absl::Nanoseconds(1));
    EXPECT_FALSE(term.IsOver());
    EXPECT_TRUE(term.Check().ok()) << term.Check();
    clock_.Advance(absl::Nanoseconds(1));
    EXPECT_TRUE(term.IsOver());
    EXPECT_EQ(term.Check().code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(absl::StrContains(term.Check().message(), "--max-connection-age"));
  };
  Look(grpc::SslServerCredentials(options),
       grpc::SslCredentials({.pem_root_certs = pair.cert_chain}));
  EXPECT_EQ(looked, 1);
}

TEST_F(StreamTermTest, InPlainTextItDoesNotEnd) {
  int looked = 0;
  service_.look = [&](const grpc::ServerContextBase& context) {
    ++looked;
    const StreamTerm term(&context, gate_);
    clock_.Advance(100 * kAge);
    EXPECT_FALSE(term.IsOver());
    EXPECT_TRUE(term.Check().ok()) << term.Check();
  };
  Look(grpc::InsecureServerCredentials(), grpc::InsecureChannelCredentials());
  EXPECT_EQ(looked, 1);
}

}  // namespace
}  // namespace tidepool::service
