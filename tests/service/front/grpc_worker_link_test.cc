// A front's link to a worker over real gRPC. The test controls the worker.
#include "service/front/grpc_worker_link.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/grpc/grpc_process.h"
#include "service/grpc/status.h"
#include "tests/fakes/manual_clock.h"
#include "tests/service/base/manual_executor.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::service {
namespace {

// Ends each stream of states with OK. The first `telling` streams send one state before they end.
// The others send none.
class ShortWatches final : public worker::v1::Worker::Service {
 public:
  explicit ShortWatches(int telling) : telling_(telling) {}

  grpc::Status Watch(grpc::ServerContext*, const worker::v1::WatchRequest*,
                     grpc::ServerWriter<worker::v1::WatchResponse>* writer) override {
    worker::v1::WatchResponse state;
    state.set_worker_id("w");
    if (++streams_ <= telling_) writer->Write(state);
    return grpc::Status::OK;
  }

 private:
  const int telling_;
  std::atomic<int> streams_ = 0;
};

// A server with this worker, and the link of a front to it.
struct Linked {
  explicit Linked(worker::v1::Worker::Service* worker) {
    KeepCallbackQueue();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(worker);
    server = builder.BuildAndStart();
    address = absl::StrCat("127.0.0.1:", port);
    link = MakeGrpcWorkerLink(MakeWorkerChannel(address, "", 1 << 20, nullptr), address,
                              {.executor = &loop, .calls = &calls});
  }

  std::unique_ptr<grpc::Server> server;
  fakes::ManualClock clock;
  ManualExecutor loop{&clock};
  ActiveCalls calls;
  std::string address;
  std::unique_ptr<WorkerLink> link;
};

// Acts like a server whose gRPC cancels calls that arrive during its shutdown.
class Cancelling final : public worker::v1::Worker::Service {
 public:
  grpc::Status Prepare(grpc::ServerContext*, const worker::v1::PrepareRequest*,
                       worker::v1::PrepareResponse*) override {
    return Cancelled();
  }
  grpc::Status Tokenize(grpc::ServerContext*, const v1::TokenizeRequest*,
                        v1::TokenizeResponse*) override {
    return Cancelled();
  }
  grpc::Status Run(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<worker::v1::RunResponse, worker::v1::RunRequest>*) override {
    return Cancelled();
  }

 private:
  static grpc::Status Cancelled() { return {grpc::StatusCode::CANCELLED, "CANCELLED"}; }
};

TEST(GrpcWorkerLinkTest, ACallThatAWorkerCancelsIsUnavailable) {
  Cancelling worker;
  Linked linked(&worker);
  std::vector<absl::Status> ends;
  linked.link->Prepare({}, absl::InfiniteDuration(),
                       [&](const absl::StatusOr<worker::v1::PrepareResponse>& end) {
                         ends.push_back(end.status());
                       });
  linked.link->Tokenize(
      {}, absl::InfiniteDuration(),
      [&](const absl::StatusOr<v1::TokenizeResponse>& end) { ends.push_back(end.status()); });
  const auto run = linked.link->Run({}, absl::InfiniteDuration(),
                                    {.on_response = [](const worker::v1::RunResponse&) {},
                                     .on_end =
                                         [&](const absl::Status& end, EndedBy by) {
                                           EXPECT_EQ(by, EndedBy::kAway);
                                           ends.push_back(end);
                                         }});
  linked.loop.RunUntil([&] { return ends.size() == 3; });
  for (const absl::Status& end : ends) {
    EXPECT_EQ(end, absl::UnavailableError(
                       absl::StrCat("worker ", linked.address, " cancelled the call: CANCELLED")));
  }
}

// Closes each connection when its first request arrives. It implements only the part of HTTP/2 that
// this needs.
class Refusing {
 public:
  enum class How : uint8_t {
    // Says that the server has not begun the request. gRPC's own retries would send such a request
    // again (transparent retries of gRFC A6).
    kGoAway,
    // Closes the connection without a message, like a process that crashes.
    kBreak,
  };
  explicit Refusing(How how)
      : how_(how), acceptor_(io_, {boost::asio::ip::make_address("127.0.0.1"), 0}) {
    address = absl::StrCat("127.0.0.1:", acceptor_.local_endpoint().port());
    boost::asio::co_spawn(io_, Accept(), boost::asio::detached);
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Refusing() {
    io_.stop();
    thread_.join();
  }

  std::string address;
  std::atomic<int> requests = 0;

 private:
  using Socket = boost::asio::ip::tcp::socket;
  using Bytes = std::vector<uint8_t>;
  enum : uint8_t { kHeaders = 1, kSettings = 4, kGoAway = 7, kAck = 1 };

  boost::asio::awaitable<void> Accept() {
    while (true) {
      Socket socket = co_await acceptor_.async_accept(boost::asio::use_awaitable);
      boost::asio::co_spawn(io_, Refuse(std::move(socket)), boost::asio::detached);
    }
  }

  // Runs until the connection ends. Then it ends with an exception.
  boost::asio::awaitable<void> Refuse(Socket socket) {
    const auto write = [&socket](const Bytes& bytes) {
      boost::asio::write(socket, boost::asio::buffer(bytes));
    };
    Bytes preface(24);
    co_await boost::asio::async_read(socket, boost::asio::buffer(preface),
                                     boost::asio::use_awaitable);
    write({0, 0, 0, kSettings, 0, 0, 0, 0, 0});
    while (true) {
      Bytes head(9);  // length, type, flags, stream
      co_await boost::asio::async_read(socket, boost::asio::buffer(head),
                                       boost::asio::use_awaitable);
      Bytes payload(size_t{head[0]} << 16 | size_t{head[1]} << 8 | head[2]);
      co_await boost::asio::async_read(socket, boost::asio::buffer(payload),
                                       boost::asio::use_awaitable);
      if (head[3] == kSettings && head[4] != kAck) write({0, 0, 0, kSettings, kAck, 0, 0, 0, 0});
      if (head[3] != kHeaders) continue;
      ++requests;
      if (how_ == How::kBreak) co_return;
      // The number of the last stream is 0, and the error code is 0.
      write({0, 0, 8, kGoAway, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    }
  }

  const How how_;
  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::thread thread_;
};

TEST(GrpcWorkerLinkTest, OnlyTheFrontSendsARequestAgain) {
  KeepCallbackQueue();
  Refusing worker(Refusing::How::kGoAway);
  fakes::ManualClock clock;
  ManualExecutor loop{&clock};
  ActiveCalls calls;
  const auto link = MakeGrpcWorkerLink(MakeWorkerChannel(worker.address, "", 1 << 20, nullptr),
                                       worker.address, {.executor = &loop, .calls = &calls});
  absl::Status end;
  link->Prepare({}, absl::InfiniteDuration(),
                [&](const absl::StatusOr<worker::v1::PrepareResponse>& prepared) {
                  end = prepared.status();
                });
  loop.RunUntil([&] { return !end.ok(); });
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable) << end;
  EXPECT_EQ(worker.requests, 1);
}

TEST(GrpcWorkerLinkTest, DistinguishesAWorkerThatDiesFromAnUnreachableOne) {
  KeepCallbackQueue();
  fakes::ManualClock clock;
  ManualExecutor loop{&clock};
  ActiveCalls calls;
  Refusing worker(Refusing::How::kBreak);
  std::string nobody;
  {
    boost::asio::io_context io;
    const boost::asio::ip::tcp::acceptor closed(io,
                                                {boost::asio::ip::make_address("127.0.0.1"), 0});
    nobody = absl::StrCat("127.0.0.1:", closed.local_endpoint().port());
  }
  for (const auto& [address, expected] :
       {std::pair(worker.address, EndedBy::kUnanswered), std::pair(nobody, EndedBy::kAway)}) {
    SCOPED_TRACE(address);
    std::vector<EndedBy> ends;
    const auto link = MakeGrpcWorkerLink(MakeWorkerChannel(address, "", 1 << 20, nullptr), address,
                                         {.executor = &loop, .calls = &calls});
    link->Prepare({}, absl::InfiniteDuration(),
                  [&](const absl::StatusOr<worker::v1::PrepareResponse>& prepared) {
                    ends.push_back(UnaryEndedBy(prepared.status()));
                  });
    loop.RunUntil([&] { return ends.size() == 1; });
    // The second link has a connection of its own, because the connection of the first is in its
    // back-off.
    const auto second = MakeGrpcWorkerLink(MakeWorkerChannel(address, "", 1 << 20, nullptr),
                                           address, {.executor = &loop, .calls = &calls});
    const auto run =
        second->Run({}, absl::InfiniteDuration(),
                    {.on_response = [](const worker::v1::RunResponse&) {},
                     .on_end = [&](const absl::Status&, EndedBy by) { ends.push_back(by); }});
    loop.RunUntil([&] { return ends.size() == 2; });
    EXPECT_EQ(ends, (std::vector<EndedBy>{expected, expected}));
  }
}

// Records the request for which it was called.
class Listening final : public worker::v1::Worker::Service {
 public:
  grpc::Status Detokenize(grpc::ServerContext* context, const v1::DetokenizeRequest*,
                          v1::DetokenizeResponse* response) override {
    const auto found = context->client_metadata().find(kForRequestOf);
    response->set_text(found == context->client_metadata().end()
                           ? "a client's"
                           : std::string(found->second.data(), found->second.size()));
    return grpc::Status::OK;
  }
};

TEST(GrpcWorkerLinkTest, SendsThePrincipalOfTheRequestThatATextIsFor) {
  Listening worker;
  Linked linked(&worker);
  std::map<std::string, std::string> texts;
  const auto take = [&](const std::string& name) {
    return [&texts, name](const absl::StatusOr<v1::DetokenizeResponse>& response) {
      texts[name] = response.ok() ? response->text() : response.status().ToString();
    };
  };
  linked.link->Detokenize({}, absl::InfiniteDuration(), take("theirs"));
  linked.link->TextOf({}, "\xC3\xA9va", absl::InfiniteDuration(), take("ours"));
  linked.link->TextOf({}, "", absl::InfiniteDuration(), take("nobody's"));
  linked.loop.RunUntil([&] { return texts.size() == 3; });
  EXPECT_EQ(texts["theirs"], "a client's");
  EXPECT_EQ(texts["ours"], "\xC3\xA9va");
  EXPECT_EQ(texts["nobody's"], "");
}

TEST(GrpcWorkerLinkTest, AStreamOfStatesThatEndsWellIsOpenedAgainAtOnce) {
  ShortWatches worker(3);
  // The time does not advance. So if there were a back-off, the stream would never be opened again.
  Linked linked(&worker);
  int states = 0;
  std::vector<absl::Status> ends;
  linked.link->Watch([&](const worker::v1::WatchResponse&) { ++states; },
                     [&](const absl::Status& status) { ends.push_back(status); });
  linked.loop.RunUntil([&] { return ends.size() == 4; });
  EXPECT_EQ(states, 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ends[i].ok()) << ends[i];
  EXPECT_EQ(ends[3].code(), absl::StatusCode::kUnavailable) << "without a state it is a loss";

  // The next attempt comes after a back-off of at most 150 ms.
  linked.loop.RunAll();
  EXPECT_EQ(ends.size(), 4);
  linked.loop.Advance(absl::Milliseconds(150));
  linked.loop.RunUntil([&] { return ends.size() == 5; });
  linked.link.reset();
  EXPECT_TRUE(linked.calls.Drain(absl::ZeroDuration())) << "no stream is open";
}

}  // namespace
}  // namespace tidepool::service
