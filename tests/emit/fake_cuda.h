/* fake_cuda.h -- a driver without a GPU for programs that flashspan wrote: it keeps what they ask of it. */
#ifndef FLASHSPAN_TESTS_EMIT_FAKE_CUDA_H_
#define FLASHSPAN_TESTS_EMIT_FAKE_CUDA_H_

#include <cuda.h>

enum { most_launches = 32, most_kept_bytes = 512 };

struct fake_launch {
  const char* kernel;
  unsigned blocks, threads, shared_bytes;
  CUstream stream;
  unsigned char parameters[2][most_kept_bytes * 4]; /* the beginnings of the first two */
};

extern int fake_device;          /* of the current context */
extern int fake_capabilities[2]; /* 10 * major + minor, of two devices */
extern int fake_processors;
extern CUresult fake_failure; /* what the next launch returns */
extern int fake_loads_left;   /* so many succeed; negative: all */
extern int fake_loads, fake_unloads, fake_maps, fake_attributes;
extern const void* fake_image; /* loaded last */
extern struct fake_launch fake_launches[most_launches];
extern int fake_launch_count;

#endif
