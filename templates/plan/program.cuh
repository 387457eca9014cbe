// program.cuh -- before the planner, where the mask is interpreted: its code goes from the arguments of
// this kernel into the workspace, where all others find it. No copy from host memory is queued, so that a captured call
// keeps what it was called with.
#pragma once

#include "mask/interpreter.cuh"

/// One block.
extern "C" __global__ void __launch_bounds__(flashspan_device::max_instructions, 1)
    plan_program(const __grid_constant__ flashspan_device::ProgramCode code,
                 const __grid_constant__ flashspan_device::ProgramArguments mask) {
  using namespace flashspan_device;
  const int i = static_cast<int>(threadIdx.x);
  mask.code->instructions[i] = code.instructions[i];
}
