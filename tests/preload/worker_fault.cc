// Faults for tests, loaded into a worker by LD_PRELOAD: the product itself has no hook for them.
//
// It stands between a worker and ZeroMQ, and does nothing in any other program. Environment:
//   FAULT_RANK    the rank that it is for; absent: all
//   FAULT_CRASH   hexadecimal bytes: a rank whose leader is sent a request with them crashes ...
//   FAULT_STEPS   ... after that many further answers (default 0: at once)
//   FAULT_HOLD    type of message ("loaded", "ready") that is not sent ...
//   FAULT_GATE    ... before this file exists
//   FAULT_STUCK   set: a worker's own thread goes on with nothing at SIGUSR1; its others live
//   FAULT_EAT     set: any program takes memory at SIGUSR2, until its control group's limit ends it
#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

// Of zmq.h, which costs a second: its message type is only passed on here.
extern "C" void* zmq_msg_data(void* message);
extern "C" std::size_t zmq_msg_size(const void* message);

namespace {

constexpr std::size_t kHeadBytes = 48;  // magic, version and type of a message stand in there
constexpr int kLookEveryMs = 5;

std::string read_self(const char* name) {
  std::array<char, 4096> buffer{};
  const int fd = ::open(name, O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd < 0 ? 0 : ::read(fd, buffer.data(), buffer.size());
  if (fd >= 0) ::close(fd);
  return {buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    int byte = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

struct Fault {
  bool is_worker = false;
  std::string crash;
  int steps = 0;
  std::string hold;
  std::string gate;

  Fault() {
    std::string command = read_self("/proc/self/cmdline");
    std::replace(command.begin(), command.end(), '\0', ' ');
    const std::string rank = from_environment("FAULT_RANK");
    const std::size_t end = command.find(' ');
    is_worker = std::string_view(command).substr(0, end).ends_with("/plimsoll-worker") &&
                (rank.empty() || command.find("--rank " + rank + " ") != std::string::npos);
    crash = bytes_of(from_environment("FAULT_CRASH"));
    steps = std::atoi(from_environment("FAULT_STEPS").c_str());
    hold = from_environment("FAULT_HOLD");
    gate = from_environment("FAULT_GATE");
  }
};

const Fault& fault() {
  static const Fault one;
  return one;
}

// Far less than any machine has, where the limit that was meant is not there.
void eat(int /*signal*/) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  constexpr int kPiecesMax = 128;
  for (int i = 0; i < kPiecesMax; ++i) {
    void* piece =
        ::mmap(nullptr, kPieceBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (piece == MAP_FAILED) continue;
    std::memset(piece, 1, kPieceBytes);
  }
  ::_exit(99);
}

void get_stuck(int /*signal*/) {
  for (;;) ::pause();
}

struct Handlers {
  Handlers() {
    if (std::getenv("FAULT_EAT") != nullptr) ::signal(SIGUSR2, eat);
    if (std::getenv("FAULT_STUCK") != nullptr) ::signal(SIGUSR1, get_stuck);
  }
};
const Handlers handlers;

int& steps_left() {
  static int left = -1;  // nothing is to happen
  return left;
}

void count_down() {
  int& left = steps_left();
  if (left >= 0 && left-- == 0) ::raise(SIGSEGV);
}

std::string_view text_of(void* message) {
  return {static_cast<const char*>(zmq_msg_data(message)), zmq_msg_size(message)};
}

bool is_of_type(std::string_view message, std::string_view type) {
  // MessagePack writes a short text as one byte with its length, then the text.
  const std::string word = static_cast<char>(0xa0U | type.size()) + std::string(type);
  return message.substr(0, kHeadBytes).find(word) != std::string_view::npos;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int zmq_msg_recv(void* message, void* socket, int flags) {
  static const auto real = next<int (*)(void*, void*, int)>("zmq_msg_recv");
  const int got = real(message, socket, flags);
  if (got < 0 || !fault().is_worker || fault().crash.empty()) return got;
  const std::string_view text = text_of(message);
  if (is_of_type(text, "generate") && text.find(fault().crash) != std::string_view::npos) {
    steps_left() = fault().steps;
    if (fault().steps == 0) count_down();
  }
  return got;
}

extern "C" int zmq_send(void* socket, const void* bytes, std::size_t length, int flags) {
  static const auto real = next<int (*)(void*, const void*, std::size_t, int)>("zmq_send");
  if (fault().is_worker) {
    const std::string_view text(static_cast<const char*>(bytes), length);
    if (is_of_type(text, "step_tokens")) count_down();
    if (!fault().hold.empty() && is_of_type(text, fault().hold)) {
      while (::access(fault().gate.c_str(), F_OK) != 0) ::poll(nullptr, 0, kLookEveryMs);
    }
  }
  return real(socket, bytes, length, flags);
}
