/* tensors.h -- DLTensors over memory of the tests. */
#ifndef FLASHSPAN_TESTS_CAPI_TENSORS_H_
#define FLASHSPAN_TESTS_CAPI_TENSORS_H_

#include <flashspan/flashspan.h>

/* A tensor with room for its shape. */
typedef struct tensor {
  DLTensor dl;
  int64_t shape[5];
} tensor;

extern const DLDevice cpu;
extern const DLDataType float32;
extern const DLDataType int32;

/* Row-major, over `data` on the CPU. The shape ends with a negative number. Must not be moved. */
void describe(tensor* to, void* data, DLDataType dtype, const int64_t* shape);
#define SHAPE(...) ((const int64_t[]){__VA_ARGS__, -1})

/* Numbers that look random, the same for a seed. */
void fill(float* values, int count, unsigned seed);

#endif
