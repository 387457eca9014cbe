// listening_socket.hpp -- ListeningSocket: a socket that takes connections, of a Unix path or a TCP port.
#pragma once

#include <string>

#include "flashspan/core/error.hpp"
#include "network/address.hpp"

namespace flashspan::network {

/// Closed, and the file of a Unix socket removed, when destroyed.
class ListeningSocket {
 public:
  /// A Unix socket has mode 0600. One that is left from a server that has died is replaced. Error: io_error, also where
  /// a server listens.
  static Result<ListeningSocket> open(const HttpAddress& address);

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// As settings take it, with the port that was taken where 0 was asked for.
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  ListeningSocket() = default;
  static Result<ListeningSocket> open_unix(const HttpAddress& address);
  static Result<ListeningSocket> open_tcp(const HttpAddress& address);

  int descriptor_ = -1;
  std::string address_;
  std::string path_;  ///< of a Unix socket
  unsigned long long inode_ = 0;
};

}  // namespace flashspan::network
