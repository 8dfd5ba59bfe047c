#include "service/cli/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "kernels/base/check.h"

namespace tidepool::service {

SignalWatcher::SignalWatcher(std::initializer_list<int> signals,
                             std::function<void(int signal)> on_signal)
    : on_signal_(std::move(on_signal)) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : signals) sigaddset(&set, signal);
  CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, nullptr), 0);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC);
  CHECK(signal_fd_ >= 0) << "signalfd";
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  CHECK(stop_fd_ >= 0) << "eventfd";
  thread_ = std::thread([this] { Run(); });
}

SignalWatcher::~SignalWatcher() {
  const uint64_t one = 1;
  CHECK_EQ(write(stop_fd_, &one, sizeof(one)), ssize_t{sizeof(one)});
  thread_.join();
  close(stop_fd_);
  close(signal_fd_);
}

void SignalWatcher::Run() {
  pollfd fds[] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  while (true) {
    // poll was interrupted, which only a debugger's signals do. So call poll again.
    if (poll(fds, 2, -1) < 0) continue;
    if ((fds[1].revents & POLLIN) != 0) return;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof(info)) != ssize_t{sizeof(info)}) continue;
    on_signal_(static_cast<int>(info.ssi_signo));
  }
}

}  // namespace tidepool::service
