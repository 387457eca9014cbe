// dialect.cuh -- the part of CUDA C++ that the templates use, so that plain clang reads them without a CUDA toolkit.
// For tools/lint_templates.sh only; never embedded.
#pragma once

#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __forceinline__ inline __attribute__((always_inline))
#define __grid_constant__

/// As cuda's headers have it: a shuffle of the argument's own type.
#define FLASHSPAN_DECLARE_SHUFFLES(type)                                         \
  __device__ type __shfl_sync(unsigned int lanes, type value, int lane);         \
  __device__ type __shfl_xor_sync(unsigned int lanes, type value, int distance); \
  __device__ type __shfl_up_sync(unsigned int lanes, type value, unsigned int distance)
FLASHSPAN_DECLARE_SHUFFLES(int);
FLASHSPAN_DECLARE_SHUFFLES(unsigned int);
FLASHSPAN_DECLARE_SHUFFLES(float);
FLASHSPAN_DECLARE_SHUFFLES(long long);
#undef FLASHSPAN_DECLARE_SHUFFLES

struct ThreeUnsigned {
  unsigned int x, y, z;
};
extern const __device__ ThreeUnsigned threadIdx;
extern const __device__ ThreeUnsigned blockIdx;
extern const __device__ ThreeUnsigned gridDim;

/// Those of other types than the first, which stands among the functions of C.
__device__ float atomicAdd(float* to, float value);
__device__ unsigned long long atomicAdd(unsigned long long* to, unsigned long long value);
__device__ unsigned long long atomicOr(unsigned long long* to, unsigned long long bits);
__device__ unsigned long long atomicCAS(unsigned long long* word, unsigned long long expected,
                                        unsigned long long value);

extern "C" {
__device__ void __syncthreads();
__device__ int __syncthreads_or(int value);
__device__ void __syncwarp(unsigned int lanes = 0xffffffffu);
__device__ void __nanosleep(unsigned int nanoseconds);
__device__ void __threadfence();
__device__ void* memcpy(void* to, const void* from, unsigned long bytes);
__device__ unsigned int __ballot_sync(unsigned int lanes, int value);
__device__ int __any_sync(unsigned int lanes, int value);
__device__ int __reduce_min_sync(unsigned int lanes, int value);
__device__ int __reduce_max_sync(unsigned int lanes, int value);
__device__ int atomicAdd(int* word, int value);
__device__ int atomicMax(int* word, int value);
__device__ unsigned int atomicInc(unsigned int* word, unsigned int largest);
__device__ unsigned int atomicOr(unsigned int* word, unsigned int bits);
__device__ unsigned long __cvta_generic_to_shared(const void* pointer);
__device__ int __popc(unsigned int bits);
__device__ int __ffs(int bits);
__device__ long long __mul64hi(long long a, long long b);
__device__ float __uint_as_float(unsigned int bits);
__device__ float __int_as_float(int bits);
__device__ float __fdiv_rn(float a, float b);
__device__ int __float_as_int(float value);
__device__ long long llrint(double value);
__device__ double ldexp(double value, int exponent);
__device__ float fmaxf(float a, float b);
__device__ int __float_as_int(float value);
__device__ float __fadd_rn(float a, float b);
__device__ float __fsub_rn(float a, float b);
__device__ float __fmul_rn(float a, float b);
__device__ float __fsqrt_rn(float a);
__device__ float __ll2float_rn(long long value);
__device__ float tanhf(float a);
__device__ float fabsf(float a);
__device__ float logf(float a);
__device__ float expf(float a);
__device__ float __fdividef(float a, float b);
}
