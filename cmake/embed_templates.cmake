# Writes one C++ source that holds every file of FILES (paths below ROOT) as a raw string literal.
# Usage: cmake -DROOT=dir -DFILES=a;b -DOUTPUT=file.cpp -P embed_templates.cmake
set(entries "")
list(LENGTH FILES count)
foreach(name IN LISTS FILES)
  file(READ "${ROOT}/${name}" text)
  string(REPLACE "\r" "" text "${text}")
  string(FIND "${text}" ")CUH\"" delimiter)
  if(NOT delimiter EQUAL -1)
    message(FATAL_ERROR "templates/${name} contains the closing delimiter )CUH\"")
  endif()
  string(APPEND entries "    TemplateFile{\"${name}\", R\"CUH(${text})CUH\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Generated from templates/; do not edit.
#include \"codegen/kernel/template_library.hpp\"

#include <array>

namespace flashspan::kernel {
namespace {
constexpr std::array<TemplateFile, ${count}> files{{
${entries}}};
}  // namespace

std::span<const TemplateFile> template_library() { return files; }

}  // namespace flashspan::kernel
")
