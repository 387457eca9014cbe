// owned_text.hpp -- OwnedText: the user's text for a compile that may outlive the call that it is for.
#pragma once

#include <optional>
#include <string>

#include "runtime/attention/kernel_provider.hpp"

namespace flashspan::attention {

class OwnedText {
 public:
  explicit OwnedText(const UserText& text) : mask_(*text.mask) {
    if (text.score != nullptr) score_ = *text.score;
  }
  [[nodiscard]] UserText view() const { return {&mask_, score_ ? &*score_ : nullptr}; }

 private:
  std::string mask_;
  std::optional<std::string> score_;
};

}  // namespace flashspan::attention
