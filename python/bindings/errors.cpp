#include "python/bindings/errors.hpp"

#include <nanobind/stl/string.h>

namespace flashspan::python {

namespace {

void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Failure& failure) {
    const nanobind::object exception = exception_of(failure.error());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  }
}

}  // namespace

nanobind::object exception_of(const Error& error) {
  return nanobind::module_::import_("flashspan.errors")
      .attr("exception_of")(to_string(error.code), error.argument, error.got, error.takes, error.detail);
}

void register_errors() { nanobind::register_exception_translator(translate); }

}  // namespace flashspan::python
