// bundle_file.cpp -- any file is refused, or its items lie inside it and are read or refused one by one.
#include "cache/bundle_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  using flashspan::cache::BundleFile;
  using flashspan::fuzz::require;
  const int file = ::memfd_create("bundle", MFD_CLOEXEC);
  require(file >= 0 && ::write(file, bytes, count) == static_cast<ssize_t>(count), "a file in memory");
  const auto bundle = BundleFile::open("/proc/self/fd/" + std::to_string(file));
  if (bundle) {
    for (const BundleFile::Item& item : bundle->items()) {
      require(item.offset + item.bytes <= count, "an item lies in its bundle");
      require(bundle->find(item.key) != nullptr, "an item is found by its key");
      std::string why;
      require(bundle->read(item, &why).has_value() || !why.empty(), "a refusal has a reason");
    }
  }
  ::close(file);
  return 0;
}
