#include "fake_cuda.h"

#include <string.h>

int fake_device = 0;
int fake_capabilities[2] = {80, 90};
int fake_processors = 7;
CUresult fake_failure = CUDA_SUCCESS;
int fake_loads_left = -1;
int fake_loads = 0, fake_unloads = 0, fake_maps = 0, fake_attributes = 0;
const void* fake_image = NULL;
struct fake_launch fake_launches[most_launches];
int fake_launch_count = 0;

CUresult cuCtxGetDevice(CUdevice* device) { return *device = fake_device, CUDA_SUCCESS; }

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  const int capability = fake_capabilities[device];
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? capability / 10
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? capability % 10
                                                                       : fake_processors;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jit, void** jit_values,
                           unsigned int jit_count, CUlibraryOption* options, void** option_values,
                           unsigned int option_count) {
  (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)option_values, (void)option_count;
  if (fake_loads_left == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (fake_loads_left > 0) --fake_loads_left;
  ++fake_loads;
  fake_image = code;
  *library = (CUlibrary)code;
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  (void)library;
  ++fake_unloads;
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  (void)library;
  *kernel = (CUkernel)name; /* lives in the program's tables */
  return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
  (void)kernel, (void)device, (void)value;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) ++fake_attributes;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  return *function = (CUfunction)kernel, CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream) {
  (void)memory, (void)value, (void)bytes, (void)stream;
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  (void)type, (void)rank, (void)extents, (void)strides, (void)box, (void)element_strides;
  (void)interleave, (void)swizzle, (void)promotion, (void)fill;
  ++fake_maps;
  memset(map, 0, sizeof *map);
  memcpy(map, &address, sizeof address);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void** parameters, void** extra) {
  (void)grid_y, (void)grid_z, (void)block_y, (void)block_z, (void)extra;
  if (fake_failure != CUDA_SUCCESS) return fake_failure;
  struct fake_launch* const launch = &fake_launches[fake_launch_count++];
  launch->kernel = (const char*)function;
  launch->blocks = grid_x;
  launch->threads = block_x;
  launch->shared_bytes = shared_bytes;
  launch->stream = stream;
  memcpy(launch->parameters[0], parameters[0], most_kept_bytes);
  memcpy(launch->parameters[1], parameters[1], most_kept_bytes * 2 - 64);
  return CUDA_SUCCESS;
}
