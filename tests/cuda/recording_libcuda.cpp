// recording_libcuda.cpp -- a shared object that calls itself libcuda.so.1 and counts how often it is used.
namespace {
int uses = 0;
}  // namespace

extern "C" {
__attribute__((visibility("default"))) int flashspan_libcuda_uses() { return uses; }
__attribute__((visibility("default"))) int cuInit(unsigned) { return ++uses, 100; }  // CUDA_ERROR_NO_DEVICE
__attribute__((visibility("default"))) int cuDriverGetVersion(int* version) { return ++uses, *version = 13000, 0; }
__attribute__((visibility("default"))) int cuGetExportTable(const void**, const void*) { return ++uses, 100; }
__attribute__((visibility("default"))) int cuGetProcAddress_v2(const char*, void**, int, unsigned long long, int*) {
  return ++uses, 100;
}
}
