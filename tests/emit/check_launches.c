/* check_launches.c -- what a program that flashspan wrote for sm_80 and sm_90a asks of the driver. Offsets of values in
 * the kernels' parameters come from whoever compiles this. */
#include <stdio.h>
#include <string.h>

#include "fake_cuda.h"
#include "swa_forward.h"

static int failures = 0;
#define CHECK(condition) \
  ((condition) ? (void)0 : (void)(++failures, printf("%s:%d: %s\n", __FILE__, __LINE__, #condition)))

static const CUdeviceptr query = 0x10000, key = 0x20000, value = 0x30000, out = 0x40000, lse = 0x50000,
                         workspace = 0x60000;
static CUstream const stream = (CUstream)0x77;

static CUresult call(float scale, long long left) {
  fake_launch_count = 0;
  return swa_forward(stream, query, key, value, out, lse, left, 0, scale, workspace);
}

static CUdeviceptr address_at(const unsigned char* parameter, size_t offset) {
  CUdeviceptr address = 0;
  memcpy(&address, parameter + offset, sizeof address);
  return address;
}

static void check_arguments(float scale, long long left) {
  for (int i = 0; i < fake_launch_count; ++i) {
    const struct fake_launch* const launch = &fake_launches[i];
    float passed_scale = 0;
    long long passed_left = 0;
    memcpy(&passed_scale, launch->parameters[0] + SCALE_OFFSET, sizeof passed_scale);
    memcpy(&passed_left, launch->parameters[1] + LEFT_OFFSET, sizeof passed_left);
    CHECK(passed_scale == scale);
    CHECK(passed_left == left);
    CHECK(address_at(launch->parameters[0], QUERY_OFFSET) == query);
    CHECK(address_at(launch->parameters[0], OUT_OFFSET) == out);
    CHECK(address_at(launch->parameters[0], LSE_OFFSET) == lse);
    CHECK(launch->stream == stream);
  }
}

int main(void) {
  CHECK(swa_forward_workspace_bytes() > 0);
  /* The device of the current context decides which machine code is loaded, once. */
  fake_device = 0;
  CHECK(call(0.125f, 100) == CUDA_SUCCESS);
  CHECK(fake_launch_count == 2);
  CHECK(strcmp(fake_launches[0].kernel, "plan_tiles") == 0);
  CHECK(strcmp(fake_launches[1].kernel, "attention_forward") == 0);
  CHECK(fake_launches[1].blocks > 7); /* a block a tile */
  CHECK(fake_maps == 0);
  check_arguments(0.125f, 100);
  const void* const ampere = fake_image; /* of the two, the planner's */
  CHECK(call(0.3f, 5) == CUDA_SUCCESS);
  check_arguments(0.3f, 5);
  CHECK(fake_loads == 2);

  fake_device = 1;
  CHECK(call(0.3f, -1) == CUDA_SUCCESS);
  check_arguments(0.3f, -1);
  CHECK(fake_loads == 4 && fake_image != ampere);
  CHECK(fake_maps == 3);
  CHECK(fake_launches[1].blocks == 7); /* persistent: one a multiprocessor */
  const int attributes = fake_attributes;
  CHECK(call(0.3f, 5) == CUDA_SUCCESS);
  CHECK(fake_attributes == attributes); /* asked for once a device */

  /* Machine code without a letter runs on later devices of its major version, with one on none but its own. */
  fake_device = 0;
  fake_capabilities[0] = 86;
  CHECK(call(1.0f, 5) == CUDA_SUCCESS);
  fake_capabilities[0] = 75;
  CHECK(call(1.0f, 5) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  fake_capabilities[0] = 100;
  CHECK(swa_forward_load() == CUDA_ERROR_NO_BINARY_FOR_GPU);
  fake_capabilities[0] = 80;

  /* Failures come back, and nothing is lost by them. */
  fake_failure = CUDA_ERROR_LAUNCH_FAILED;
  CHECK(call(1.0f, 5) == CUDA_ERROR_LAUNCH_FAILED);
  fake_failure = CUDA_SUCCESS;
  CHECK(call(1.0f, 5) == CUDA_SUCCESS);

  CHECK(swa_forward_unload() == CUDA_SUCCESS);
  CHECK(fake_unloads == 4);
  CHECK(swa_forward_unload() == CUDA_SUCCESS);
  CHECK(fake_unloads == 4);

  /* Modules are loaded all or none. */
  fake_loads_left = 1;
  CHECK(swa_forward_load() == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(fake_loads == 5 && fake_unloads == 5);
  fake_loads_left = -1;
  CHECK(swa_forward_load() == CUDA_SUCCESS);
  CHECK(fake_loads == 7);
  CHECK(call(1.0f, 5) == CUDA_SUCCESS);
  return failures == 0 ? 0 : 1;
}
