// user_text.hpp -- the user's text for messages: borrowed by a call, owned by a compile that may outlive it.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace flashspan::attention {

/// Borrowed, so that a warm call copies none of it.
struct UserText {
  const std::string* mask = nullptr;
  const std::string* score = nullptr;  ///< null: none
};

class OwnedText {
 public:
  explicit OwnedText(const UserText& text) : mask_(*text.mask) {
    if (text.score != nullptr) score_ = *text.score;
  }
  OwnedText(std::string mask, std::optional<std::string> score) : mask_(std::move(mask)), score_(std::move(score)) {}
  [[nodiscard]] UserText view() const { return {&mask_, score_ ? &*score_ : nullptr}; }

 private:
  std::string mask_;
  std::optional<std::string> score_;
};

}  // namespace flashspan::attention
