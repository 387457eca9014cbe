// module.cpp -- flashspan._core: the C++ library under the Python package. Thin; the package documents it for users.
#include <nanobind/nanobind.h>

#include "python/bindings/errors.hpp"
#include "python/bindings/parts.hpp"

NB_MODULE(_core, module) {
  // torch's compiler holds on to what its graphs were made from until the process has ended: no leak of ours.
  nanobind::set_leak_warnings(false);
  flashspan::python::register_errors();
  flashspan::python::bind_masks(module);
  flashspan::python::bind_attention(module);
  flashspan::python::bind_inspection(module);
}
