// service_request.cpp -- any body is refused, or a request that reads back the same and whose source can be written:
// as far as a client gets with a server before something is compiled.
#include "runtime/service/service_request.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "codegen/kernel/emit_cuda.hpp"
#include "tests/fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  using flashspan::DeviceKind;
  using flashspan::fuzz::require;
  const std::string_view text(reinterpret_cast<const char*>(bytes), count);
  (void)flashspan::service::prefetch_from_text(text);
  const auto request = flashspan::service::compile_request_from_text(text);
  if (!request) {
    require(!request.error().message().empty(), "an error has a message");
    return 0;
  }
  const auto again = flashspan::service::compile_request_from_text(to_text(*request));
  require(again.has_value() && again->wanted.spec == request->wanted.spec && again->wanted.key == request->wanted.key,
          "a request reads back");
  if (request->wanted.spec.target.kind == DeviceKind::cuda) (void)flashspan::kernel::emit_cuda(request->wanted.spec);
  return 0;
}
