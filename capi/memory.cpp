// memory.cpp -- device memory and waiting.
#include "capi/handles.hpp"
#include "capi/tensors.hpp"

using namespace flashspan;
using namespace flashspan::capi;

flashspan_status flashspan_buffer_allocate(DLDevice device, int64_t bytes, flashspan_buffer** buffer) {
  return guarded([&]() -> Result<void> {
    const auto place = device_of("device", device);
    if (!place) return place.error();
    return give(buffer, Buffer::allocate(*place, bytes));
  });
}

void* flashspan_buffer_data(const flashspan_buffer* buffer) {
  return buffer != nullptr ? buffer->value.data() : nullptr;
}

flashspan_status flashspan_buffer_copy_from_host(flashspan_buffer* buffer, const void* host, int64_t bytes) {
  return guarded([&]() -> Result<void> {
    if (buffer == nullptr) return null_argument("buffer");
    return buffer->value.copy_from_host(host, bytes);
  });
}

flashspan_status flashspan_buffer_copy_to_host(const flashspan_buffer* buffer, void* host, int64_t bytes) {
  return guarded([&]() -> Result<void> {
    if (buffer == nullptr) return null_argument("buffer");
    return buffer->value.copy_to_host(host, bytes);
  });
}

void flashspan_buffer_free(flashspan_buffer* buffer) { delete buffer; }

flashspan_status flashspan_synchronize(DLDevice device, void* stream) {
  return guarded([&]() -> Result<void> {
    const auto place = device_of("device", device);
    if (!place) return place.error();
    return synchronize(*place, Stream{stream});
  });
}
