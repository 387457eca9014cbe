#include "network/listening_socket.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

namespace flashspan::network {
namespace {

constexpr int backlog = 512;

std::string system_text(int error) { return std::generic_category().message(error); }

Error failure(const std::string& address, const std::string& got, const char* takes) {
  return {ErrorCode::io_error, "address to listen at", address + ": " + got, takes, ""};
}

sockaddr_un unix_name(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.data(), std::min(path.size(), sizeof(name.sun_path) - 1));
  return name;
}

/// Whether somebody takes connections at the path.
bool is_served(const sockaddr_un& name) {
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return false;
  const bool served = ::connect(probe, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
  ::close(probe);
  return served;
}

bool is_socket(const std::string& path) {
  struct stat found{};
  return ::lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode);
}

int port_of(int descriptor, int asked) {
  sockaddr_storage name{};
  socklen_t length = sizeof(name);
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &length) != 0) return asked;
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&name), length, nullptr, 0, port.data(), port.size(),
                    NI_NUMERICSERV) != 0) {
    return asked;
  }
  return std::stoi(port.data());
}

}  // namespace

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      address_(std::move(other.address_)),
      path_(std::exchange(other.path_, {})),
      inode_(other.inode_) {}

ListeningSocket::~ListeningSocket() {
  struct stat found{};
  // Another server may have taken the path over.
  if (!path_.empty() && ::lstat(path_.c_str(), &found) == 0 && found.st_ino == inode_) ::unlink(path_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<ListeningSocket> ListeningSocket::open(const HttpAddress& address) {
  return address.socket.empty() ? open_tcp(address) : open_unix(address);
}

Result<ListeningSocket> ListeningSocket::open_unix(const HttpAddress& address) {
  const std::string shown = "unix:" + address.socket;
  const sockaddr_un name = unix_name(address.socket);
  if (is_served(name)) return failure(shown, "another server listens there", "an address of its own");
  if (is_socket(address.socket)) ::unlink(address.socket.c_str());  // left by a server that died
  ListeningSocket opened;
  opened.address_ = shown;
  opened.descriptor_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (opened.descriptor_ < 0 ||
      ::bind(opened.descriptor_, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
    return failure(shown, system_text(errno), "a path in a folder that can be written to");
  }
  opened.path_ = address.socket;
  struct stat made{};
  // Nobody can connect before listen(), so nobody can between these two.
  if (::chmod(address.socket.c_str(), S_IRUSR | S_IWUSR) != 0 || ::lstat(address.socket.c_str(), &made) != 0) {
    return failure(shown, system_text(errno), "a path whose permissions can be set");
  }
  opened.inode_ = made.st_ino;
  if (::listen(opened.descriptor_, backlog) != 0) return failure(shown, system_text(errno), "a socket");
  return opened;
}

Result<ListeningSocket> ListeningSocket::open_tcp(const HttpAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int unknown = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (unknown != 0) return failure(address.base(), ::gai_strerror(unknown), "a host of this machine");
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, ::freeaddrinfo);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    ListeningSocket opened;
    opened.descriptor_ = ::socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, entry->ai_protocol);
    const int on = 1;
    if (opened.descriptor_ >= 0 && ::setsockopt(opened.descriptor_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        ::bind(opened.descriptor_, entry->ai_addr, entry->ai_addrlen) == 0 &&
        ::listen(opened.descriptor_, backlog) == 0) {
      HttpAddress taken = address;
      taken.port = port_of(opened.descriptor_, address.port);
      opened.address_ = taken.base();
      return opened;
    }
    error = errno;
  }
  return failure(address.base(), system_text(error), "a port that is free");
}

}  // namespace flashspan::network
