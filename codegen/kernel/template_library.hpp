// template_library.hpp -- the .cuh files under templates/, embedded at build time (the array is generated).
#pragma once

#include <span>
#include <string_view>

namespace flashspan::kernel {

struct TemplateFile {
  std::string_view name;  ///< path below templates/, as written in #include
  std::string_view text;
};

/// All embedded templates, sorted by name; the stand-ins in templates/generated are not among them.
[[nodiscard]] std::span<const TemplateFile> template_library();

}  // namespace flashspan::kernel
