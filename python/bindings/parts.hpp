// parts.hpp -- what each file of the extension adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace flashspan::python {

void bind_masks(nanobind::module_& module);
void bind_attention(nanobind::module_& module);
void bind_inspection(nanobind::module_& module);

}  // namespace flashspan::python
