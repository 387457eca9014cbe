#include "tensors.h"

#include <string.h>

const DLDevice cpu = {kDLCPU, 0};
const DLDataType float32 = {kDLFloat, 32, 1};
const DLDataType int32 = {kDLInt, 32, 1};

void describe(tensor* to, void* data, DLDataType dtype, const int64_t* shape) {
  memset(to, 0, sizeof *to);
  to->dl.data = data;
  to->dl.device = cpu;
  to->dl.dtype = dtype;
  to->dl.shape = to->shape;
  while (shape[to->dl.ndim] >= 0) {
    to->shape[to->dl.ndim] = shape[to->dl.ndim];
    ++to->dl.ndim;
  }
}

void fill(float* values, int count, unsigned seed) {
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / (float)(1u << 23) - 1.0f;
  }
}
