// replaced.hpp -- a text with every occurrence of another in it replaced.
#pragma once

#include <cstddef>
#include <string>

namespace flashspan::api {

[[nodiscard]] inline std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

}  // namespace flashspan::api
