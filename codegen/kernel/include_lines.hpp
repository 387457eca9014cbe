// include_lines.hpp -- reading text line by line, and the #include lines of our templates.
#pragma once

#include <optional>
#include <string_view>

namespace flashspan::kernel {

/// Calls `visit` with every line, without its newline.
template <typename Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    visit(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

/// Name in `#include "name"`; nothing for any other line. Our templates write it in this one form.
[[nodiscard]] inline std::optional<std::string_view> included_file(std::string_view line) {
  constexpr std::string_view prefix = "#include \"";
  if (!line.starts_with(prefix) || !line.ends_with('"') || line.size() <= prefix.size()) return std::nullopt;
  return line.substr(prefix.size(), line.size() - prefix.size() - 1);
}

}  // namespace flashspan::kernel
