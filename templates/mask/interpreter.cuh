// interpreter.cuh -- MaskProgram for any mask: one program, compiled once, that carries out the instructions of
// another, which is data (runtime/cuda/program_code.cpp). Slower than a compiled mask by a factor of ten and more; for
// calls that cannot wait for theirs. There is no interval analysis: every tile is evaluated.
#pragma once

#include "mask/index_range.cuh"
#include "mask/interval.cuh"

namespace flashspan_device {

/// Values of one evaluation, in local memory: which slot an instruction takes is not known when this is compiled.
struct Slots {
  int64 of[max_slots];

  __device__ __forceinline__ float real(int slot) const { return __int_as_float(static_cast<int>(of[slot])); }
  __device__ __forceinline__ void set_real(int slot, float value) { of[slot] = __float_as_int(value); }
};

__device__ __forceinline__ int64 variable_value(int number, int b, int h, int q, int k, int q_len, int kv_len) {
  switch (number) {
    case 0:
      return b;
    case 1:
      return h;
    case 2:
      return q;
    case 3:
      return k;
    case 4:
      return q_len;
    default:
      return kv_len;
  }
}

/// Element offset of a lookup's indices, or -1 outside the tensor.
__device__ __forceinline__ int64 offset_of(const LookupTensor& tensor, const Instruction& step, const Slots& slots) {
  int64 offset = 0;
  for (int axis = 0; axis < step.b; ++axis) {
    const int64 index = slots.of[step.value >> axis * slot_bits & ((1 << slot_bits) - 1)];
    if (index < 0 || index >= tensor.extent[axis]) return -1;
    offset += index * tensor.stride[axis];
  }
  return offset;
}

/// Bits of the element, widened.
__device__ __forceinline__ int64 looked_up(const LookupTensor& tensor, const Instruction& step, const Slots& slots) {
  const int64 offset = offset_of(tensor, step, slots);
  if (offset < 0) return 0;
  if (step.operation == Operation::lookup_i32 || step.operation == Operation::lookup_f32) {
    return static_cast<const int*>(tensor.data)[offset];
  }
  const unsigned short half = static_cast<const unsigned short*>(tensor.data)[offset];
  return __float_as_int(step.operation == Operation::lookup_bf16 ? widen<true>(half) : widen<false>(half));
}

/// An operation whose operands are all in slots, and that does not change which instruction is next.
__device__ __forceinline__ void carry_out(const Instruction& step, Slots& slots) {
  const int64 a = slots.of[step.a];
  const int64 b = slots.of[step.b];
  const float x = slots.real(step.a);
  const float y = slots.real(step.b);
  int64& to = slots.of[step.to];
  switch (step.operation) {
    case Operation::add:
      to = wrapping_add(a, b);
      break;
    case Operation::subtract:
      to = wrapping_subtract(a, b);
      break;
    case Operation::multiply:
      to = wrapping_multiply(a, b);
      break;
    case Operation::minimum:
      to = a < b ? a : b;
      break;
    case Operation::maximum:
      to = a > b ? a : b;
      break;
    case Operation::negate:
      to = wrapping_subtract(0, a);
      break;
    case Operation::absolute:
      to = a < 0 ? wrapping_subtract(0, a) : a;
      break;
    case Operation::floor_divide:
      to = floor_divide<int64>(a, b);
      break;
    case Operation::modulo:
      to = floor_modulo<int64>(a, b);
      break;
    case Operation::real_add:
      slots.set_real(step.to, __fadd_rn(x, y));
      break;
    case Operation::real_subtract:
      slots.set_real(step.to, __fsub_rn(x, y));
      break;
    case Operation::real_multiply:
      slots.set_real(step.to, __fmul_rn(x, y));
      break;
    case Operation::real_minimum:
      slots.set_real(step.to, x < y ? x : y);
      break;
    case Operation::real_maximum:
      slots.set_real(step.to, x > y ? x : y);
      break;
    case Operation::real_negate:
      slots.set_real(step.to, -x);
      break;
    case Operation::real_absolute:
      slots.set_real(step.to, fabsf(x));
      break;
    case Operation::real_divide:
      slots.set_real(step.to, divide_or_zero(x, y));
      break;
    case Operation::real_tanh:
      slots.set_real(step.to, tanhf(x));
      break;
    case Operation::real_exp:
      slots.set_real(step.to, expf(x));
      break;
    case Operation::real_log:
      slots.set_real(step.to, logf(x));
      break;
    case Operation::real_sqrt:
      slots.set_real(step.to, __fsqrt_rn(x));
      break;
    case Operation::to_real:
      slots.set_real(step.to, __ll2float_rn(a));
      break;
    case Operation::less:
      to = static_cast<int64>(a < b);
      break;
    case Operation::less_equal:
      to = static_cast<int64>(a <= b);
      break;
    case Operation::equal:
      to = static_cast<int64>(a == b);
      break;
    case Operation::not_equal:
      to = static_cast<int64>(a != b);
      break;
    case Operation::real_less:
      to = static_cast<int64>(x < y);
      break;
    case Operation::real_less_equal:
      to = static_cast<int64>(x <= y);
      break;
    case Operation::real_equal:
      to = static_cast<int64>(x == y);
      break;
    case Operation::real_not_equal:
      to = static_cast<int64>(x != y);
      break;
    case Operation::logical_and:
      to = a & b;
      break;
    case Operation::logical_or:
      to = a | b;
      break;
    case Operation::logical_not:
      to = a ^ 1;
      break;
    default:  // those of interpret()
      break;
  }
}

/// All threads of a warp carry out the same instructions, loops apart.
__device__ inline bool interpret(const ProgramArguments& arguments, int b, int h, int q, int k, int q_len, int kv_len) {
  Slots slots;
  const Instruction* const code = arguments.code->instructions;
#pragma unroll 1
  for (int place = 0;; ++place) {
    const Instruction step = code[place];
    switch (step.operation) {
      case Operation::result:
        return slots.of[step.a] != 0;
      case Operation::integer_constant:
        slots.of[step.to] = step.value;
        break;
      case Operation::append_low_bits:
        slots.of[step.to] =
            static_cast<int64>(static_cast<uint64>(slots.of[step.a]) << 32 | static_cast<unsigned int>(step.value));
        break;
      case Operation::variable:
        slots.of[step.to] = variable_value(step.value, b, h, q, k, q_len, kv_len);
        break;
      case Operation::integer_scalar:
        slots.of[step.to] = arguments.integers[step.value];
        break;
      case Operation::real_scalar:
        slots.set_real(step.to, arguments.reals[step.value]);
        break;
      case Operation::lookup_i32:
      case Operation::lookup_f32:
      case Operation::lookup_f16:
      case Operation::lookup_bf16:
        slots.of[step.to] = looked_up(arguments.tensors[step.a], step, slots);
        break;
      case Operation::select:
        slots.of[step.to] = slots.of[slots.of[step.a] != 0 ? static_cast<int>(step.b) : step.value];
        break;
      case Operation::loop_begin:
        slots.of[step.to] = slots.of[step.a];
        if (slots.of[step.a] >= slots.of[step.b]) {
          slots.of[code[step.value].to] = 0;
          place = step.value;
        }
        break;
      case Operation::loop_end: {
        const Instruction begin = code[step.value];
        const bool held = slots.of[step.b] != 0;
        const int64 next = slots.of[begin.to] + 1;
        if (!held && next < slots.of[begin.b]) {
          slots.of[begin.to] = next;
          place = step.value;
        } else {
          slots.of[step.to] = static_cast<int64>(held);
        }
        break;
      }
      default:
        carry_out(step, slots);
    }
  }
}

/// In place of the generated struct of the same name.
struct MaskProgram {
  static constexpr int row_lookups = 0;
  static constexpr int column_lookups = 0;
  static constexpr bool lookups_by_tile = false;

  static __device__ __forceinline__ bool visible(const ProgramArguments& arguments, int b, int h, int q, int k,
                                                 int q_len, int kv_len) {
    return interpret(arguments, b, h, q, k, q_len, kv_len);
  }

  static __device__ __forceinline__ bool visible(const ProgramArguments& arguments, const int* row, const int* column,
                                                 int b, int h, int q, int k, int q_len, int kv_len) {
    (void)row, (void)column;
    return interpret(arguments, b, h, q, k, q_len, kv_len);
  }

  static __device__ __forceinline__ void look_up_row(const ProgramArguments& arguments, int* values, int b, int h,
                                                     int q, int q_len, int kv_len) {
    (void)arguments, (void)values, (void)b, (void)h, (void)q, (void)q_len, (void)kv_len;
  }

  static __device__ __forceinline__ void analyse_row(const ProgramArguments& arguments, Interval* ranges, Interval b,
                                                     Interval h, Interval q, int q_len, int kv_len) {
    (void)arguments, (void)ranges, (void)b, (void)h, (void)q, (void)q_len, (void)kv_len;
  }

  static __device__ __forceinline__ void look_up_column(const ProgramArguments& arguments, int* values, int b, int h,
                                                        int k, int q_len, int kv_len) {
    (void)arguments, (void)values, (void)b, (void)h, (void)k, (void)q_len, (void)kv_len;
  }

  static __device__ __forceinline__ void analyse_column(const ProgramArguments& arguments, Interval* ranges, Interval b,
                                                        Interval h, Interval k, int q_len, int kv_len) {
    (void)arguments, (void)ranges, (void)b, (void)h, (void)k, (void)q_len, (void)kv_len;
  }

  static __device__ __forceinline__ TileClass classify(const ProgramArguments& arguments, const Interval* row,
                                                       const Interval* column, Interval b, Interval h, Interval q,
                                                       Interval k, int q_len, int kv_len) {
    (void)arguments, (void)row, (void)column, (void)b, (void)h, (void)q, (void)k, (void)q_len, (void)kv_len;
    return TileClass::partial;
  }

  static __device__ __forceinline__ float score(const ProgramArguments& arguments, int b, int h, int q, int k,
                                                int q_len, int kv_len, float score) {
    (void)arguments, (void)b, (void)h, (void)q, (void)k, (void)q_len, (void)kv_len;
    return score;
  }

  static __device__ __forceinline__ float score_gradient(const ProgramArguments& arguments, int b, int h, int q, int k,
                                                         int q_len, int kv_len, float score) {
    (void)arguments, (void)b, (void)h, (void)q, (void)k, (void)q_len, (void)kv_len, (void)score;
    return 1.f;
  }

  static constexpr int row_ranges = 0;
  static constexpr int column_ranges = 0;
};

}  // namespace flashspan_device
