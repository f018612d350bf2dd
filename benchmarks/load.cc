// A closed loop of requests: load PORT FILE CONNECTIONS SECONDS COUNT.
//
// FILE has requests, each after its length in 8 bytes, little endian. Every connection sends the next request of the
// file, from the first again after the last, reads the whole response and takes the next one. No connection starts a
// request after SECONDS, or after COUNT requests in all, but each sends at least one. One thread serves all
// connections. The last line printed is JSON: the fields of `load.Sample`, except the CPU time.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int kTimeoutMs = 60'000;
constexpr int kFirstRefusal = 400;
constexpr size_t kChunk = 1 << 20;

struct Connection {
  int fd = -1;
  std::string_view unsent;
  std::string head;           // of the response, until it is complete
  int64_t left = 0;           // bytes of the response's body that have not arrived
  bool in_body = false;
  bool waits = false;         // for a response
  double began = 0;
};

struct Result {
  std::vector<float> latencies;
  int64_t refused = 0, failed = 0;
  double last = 0;
};

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<std::string_view> read_requests(const char* path) {
  const int fd = open(path, O_RDONLY);
  struct stat status{};
  if (fd < 0 || fstat(fd, &status) != 0) die(path);
  const size_t size = static_cast<size_t>(status.st_size);
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
  if (mapped == MAP_FAILED) die(path);
  const char* bytes = static_cast<const char*>(mapped);
  std::vector<std::string_view> requests;
  for (size_t at = 0; at < size;) {
    uint64_t length = 0;
    std::memcpy(&length, bytes + at, sizeof length);
    requests.emplace_back(bytes + at + sizeof length, length);
    at += sizeof length + length;
  }
  return requests;
}

int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) die("connect");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

// Send what the socket takes; false if the connection is broken.
bool flush(Connection& c) {
  while (!c.unsent.empty()) {
    const ssize_t size = send(c.fd, c.unsent.data(), c.unsent.size(), MSG_NOSIGNAL);
    if (size < 0) return errno == EAGAIN;
    c.unsent.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

// Take bytes of a response; false if it has no Content-Length.
bool take(Connection& c, std::string_view bytes) {
  if (c.in_body) {
    c.left -= static_cast<int64_t>(bytes.size());
    return true;
  }
  c.head.append(bytes);
  const size_t end = c.head.find("\r\n\r\n");
  if (end == std::string::npos) return true;
  const char* length = strcasestr(c.head.c_str(), "\r\ncontent-length:");
  if (length == nullptr || length > c.head.c_str() + end) return false;
  c.left = std::atoll(std::strchr(length, ':') + 1) - static_cast<int64_t>(c.head.size() - end - 4);
  c.in_body = true;
  return true;
}

enum class Event { kWaiting, kAnswered, kBroken };

// Read until the response is complete or the socket is empty.
Event drain(Connection& c, char* buffer) {
  while (true) {
    const ssize_t size = recv(c.fd, buffer, kChunk, 0);
    if (size < 0 && errno == EAGAIN) return Event::kWaiting;
    if (size <= 0 || !take(c, {buffer, static_cast<size_t>(size)})) return Event::kBroken;
    if (c.in_body && c.left <= 0) return c.left == 0 ? Event::kAnswered : Event::kBroken;
  }
}

void print(Result& result, double start) {
  std::vector<float>& all = result.latencies;
  std::sort(all.begin(), all.end());
  const size_t count = all.size();
  if (all.empty()) all.push_back(0);
  std::printf(
      "{\"requests\": %zu, \"seconds\": %.6f, \"p50\": %.6f, \"p99\": %.6f, \"longest\": %.6f, \"refused\": %ld, "
      "\"failed\": %ld}\n",
      count, std::max(result.last - start, 1e-6), all[all.size() / 2], all[all.size() * 99 / 100], all.back(),
      static_cast<long>(result.refused), static_cast<long>(result.failed));
}

}  // namespace

int main(int count_of_arguments, char** arguments) {
  if (count_of_arguments != 6) {
    std::fprintf(stderr, "expected PORT FILE CONNECTIONS SECONDS COUNT\n");
    return 2;
  }
  const int port = std::atoi(arguments[1]);
  const std::vector<std::string_view> requests = read_requests(arguments[2]);
  const double seconds = std::atof(arguments[4]);
  const int64_t count = std::atoll(arguments[5]);
  std::vector<Connection> connections(static_cast<size_t>(std::atoi(arguments[3])));
  std::vector<char> buffer(kChunk);
  std::vector<epoll_event> events(connections.size());
  Result result;
  result.latencies.reserve(1 << 20);
  const int epoll = epoll_create1(0);
  for (Connection& c : connections) {
    c.fd = connect_to(port);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.ptr = &c;
    epoll_ctl(epoll, EPOLL_CTL_ADD, c.fd, &event);
  }

  int64_t sent = 0;
  size_t waiting = 0;
  const auto begin = [&](Connection& c) {
    c.unsent = requests[static_cast<size_t>(sent++) % requests.size()];
    c.head.clear();
    c.in_body = false;
    c.waits = true;
    c.began = now();
    ++waiting;
    return flush(c);
  };
  const auto finish = [&](Connection& c) {
    c.waits = false;
    --waiting;
  };
  const auto abandon = [&](Connection& c) {
    close(c.fd);
    finish(c);
    ++result.failed;
  };
  const double start = now(), end = start + seconds;
  for (Connection& c : connections) {
    if (sent < count && !begin(c)) abandon(c);
  }
  while (waiting > 0) {
    const int ready = epoll_wait(epoll, events.data(), static_cast<int>(events.size()), kTimeoutMs);
    if (ready <= 0) break;
    for (int i = 0; i < ready; ++i) {
      Connection& c = *static_cast<Connection*>(events[static_cast<size_t>(i)].data.ptr);
      if (!c.waits) continue;  // the server closes an idle connection
      const Event event = flush(c) ? drain(c, buffer.data()) : Event::kBroken;
      if (event == Event::kBroken) abandon(c);
      if (event != Event::kAnswered) continue;
      finish(c);
      result.last = now();
      result.latencies.push_back(static_cast<float>(result.last - c.began));
      if (std::atoi(c.head.c_str() + 9) >= kFirstRefusal) ++result.refused;
      if (sent < count && result.last < end && !begin(c)) abandon(c);
    }
  }
  result.failed += static_cast<int64_t>(waiting);
  print(result, start);
}
