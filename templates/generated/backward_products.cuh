// backward_products.cuh -- generated: the matrix products of one kernel's shape.
#pragma once

#include "ptx/matrix.cuh"
#include "ptx/warpgroup.cuh"

namespace flashspan_device {

/// scores = K Q^T; 64 keys of a warpgroup.
__device__ __forceinline__ void multiply_scores(float (&scores)[32], u64 key, u64 query) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      ".reg .pred start;\n"
      ".reg .b64 a, b;\n"
      "setp.ne.b32 start, 0, 0;\n"
      "setp.eq.b32 add, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, start, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 2;\n"
      "add.s64 b, %33, 2;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 4;\n"
      "add.s64 b, %33, 4;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 6;\n"
      "add.s64 b, %33, 6;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1024;\n"
      "add.s64 b, %33, 512;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1026;\n"
      "add.s64 b, %33, 514;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1028;\n"
      "add.s64 b, %33, 516;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1030;\n"
      "add.s64 b, %33, 518;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(scores[0]), "+f"(scores[1]), "+f"(scores[2]), "+f"(scores[3]), "+f"(scores[4]), "+f"(scores[5]),
        "+f"(scores[6]), "+f"(scores[7]), "+f"(scores[8]), "+f"(scores[9]), "+f"(scores[10]), "+f"(scores[11]),
        "+f"(scores[12]), "+f"(scores[13]), "+f"(scores[14]), "+f"(scores[15]), "+f"(scores[16]), "+f"(scores[17]),
        "+f"(scores[18]), "+f"(scores[19]), "+f"(scores[20]), "+f"(scores[21]), "+f"(scores[22]), "+f"(scores[23]),
        "+f"(scores[24]), "+f"(scores[25]), "+f"(scores[26]), "+f"(scores[27]), "+f"(scores[28]), "+f"(scores[29]),
        "+f"(scores[30]), "+f"(scores[31])
      : "l"(key), "l"(query)
      : "memory");
}

/// weight_gradients = V dO^T; 64 keys of a warpgroup.
__device__ __forceinline__ void multiply_weight_gradients(float (&weight_gradients)[32], u64 value, u64 out_gradient) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      ".reg .pred start;\n"
      ".reg .b64 a, b;\n"
      "setp.ne.b32 start, 0, 0;\n"
      "setp.eq.b32 add, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, start, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 2;\n"
      "add.s64 b, %33, 2;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 4;\n"
      "add.s64 b, %33, 4;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 6;\n"
      "add.s64 b, %33, 6;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1024;\n"
      "add.s64 b, %33, 512;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1026;\n"
      "add.s64 b, %33, 514;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1028;\n"
      "add.s64 b, %33, 516;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1030;\n"
      "add.s64 b, %33, 518;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(weight_gradients[0]), "+f"(weight_gradients[1]), "+f"(weight_gradients[2]), "+f"(weight_gradients[3]),
        "+f"(weight_gradients[4]), "+f"(weight_gradients[5]), "+f"(weight_gradients[6]), "+f"(weight_gradients[7]),
        "+f"(weight_gradients[8]), "+f"(weight_gradients[9]), "+f"(weight_gradients[10]), "+f"(weight_gradients[11]),
        "+f"(weight_gradients[12]), "+f"(weight_gradients[13]), "+f"(weight_gradients[14]), "+f"(weight_gradients[15]),
        "+f"(weight_gradients[16]), "+f"(weight_gradients[17]), "+f"(weight_gradients[18]), "+f"(weight_gradients[19]),
        "+f"(weight_gradients[20]), "+f"(weight_gradients[21]), "+f"(weight_gradients[22]), "+f"(weight_gradients[23]),
        "+f"(weight_gradients[24]), "+f"(weight_gradients[25]), "+f"(weight_gradients[26]), "+f"(weight_gradients[27]),
        "+f"(weight_gradients[28]), "+f"(weight_gradients[29]), "+f"(weight_gradients[30]), "+f"(weight_gradients[31])
      : "l"(value), "l"(out_gradient)
      : "memory");
}

/// value_gradient += P^T dO; 64 keys of a warpgroup, P^T as operand fragments.
__device__ __forceinline__ void accumulate_value_gradient(float (&value_gradient)[64], const u32 (&weights)[16],
                                                          u64 out_gradient, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      ".reg .pred start;\n"
      ".reg .b64 b;\n"
      "setp.ne.b32 start, %81, 0;\n"
      "setp.eq.b32 add, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %80, start, 1, 1, 1;\n"
      "add.s64 b, %80, 128;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%68, %69, %70, %71}, b, add, 1, 1, 1;\n"
      "add.s64 b, %80, 256;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%72, %73, %74, %75}, b, add, 1, 1, 1;\n"
      "add.s64 b, %80, 384;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%76, %77, %78, %79}, b, add, 1, 1, 1;\n"
      "}\n"
      : "+f"(value_gradient[0]), "+f"(value_gradient[1]), "+f"(value_gradient[2]), "+f"(value_gradient[3]),
        "+f"(value_gradient[4]), "+f"(value_gradient[5]), "+f"(value_gradient[6]), "+f"(value_gradient[7]),
        "+f"(value_gradient[8]), "+f"(value_gradient[9]), "+f"(value_gradient[10]), "+f"(value_gradient[11]),
        "+f"(value_gradient[12]), "+f"(value_gradient[13]), "+f"(value_gradient[14]), "+f"(value_gradient[15]),
        "+f"(value_gradient[16]), "+f"(value_gradient[17]), "+f"(value_gradient[18]), "+f"(value_gradient[19]),
        "+f"(value_gradient[20]), "+f"(value_gradient[21]), "+f"(value_gradient[22]), "+f"(value_gradient[23]),
        "+f"(value_gradient[24]), "+f"(value_gradient[25]), "+f"(value_gradient[26]), "+f"(value_gradient[27]),
        "+f"(value_gradient[28]), "+f"(value_gradient[29]), "+f"(value_gradient[30]), "+f"(value_gradient[31]),
        "+f"(value_gradient[32]), "+f"(value_gradient[33]), "+f"(value_gradient[34]), "+f"(value_gradient[35]),
        "+f"(value_gradient[36]), "+f"(value_gradient[37]), "+f"(value_gradient[38]), "+f"(value_gradient[39]),
        "+f"(value_gradient[40]), "+f"(value_gradient[41]), "+f"(value_gradient[42]), "+f"(value_gradient[43]),
        "+f"(value_gradient[44]), "+f"(value_gradient[45]), "+f"(value_gradient[46]), "+f"(value_gradient[47]),
        "+f"(value_gradient[48]), "+f"(value_gradient[49]), "+f"(value_gradient[50]), "+f"(value_gradient[51]),
        "+f"(value_gradient[52]), "+f"(value_gradient[53]), "+f"(value_gradient[54]), "+f"(value_gradient[55]),
        "+f"(value_gradient[56]), "+f"(value_gradient[57]), "+f"(value_gradient[58]), "+f"(value_gradient[59]),
        "+f"(value_gradient[60]), "+f"(value_gradient[61]), "+f"(value_gradient[62]), "+f"(value_gradient[63])
      : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "r"(weights[4]), "r"(weights[5]),
        "r"(weights[6]), "r"(weights[7]), "r"(weights[8]), "r"(weights[9]), "r"(weights[10]), "r"(weights[11]),
        "r"(weights[12]), "r"(weights[13]), "r"(weights[14]), "r"(weights[15]), "l"(out_gradient),
        "r"(static_cast<u32>(accumulate))
      : "memory");
}

/// key_gradient += dS^T Q; 64 keys of a warpgroup.
__device__ __forceinline__ void accumulate_key_gradient(float (&key_gradient)[64], u64 score_gradients, u64 query,
                                                        bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      ".reg .pred start;\n"
      ".reg .b64 a, b;\n"
      "setp.ne.b32 start, %66, 0;\n"
      "setp.eq.b32 add, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, start, 1, 1, 0, 1;\n"
      "add.s64 a, %64, 2;\n"
      "add.s64 b, %65, 128;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, a, b, add, 1, 1, 0, 1;\n"
      "add.s64 a, %64, 4;\n"
      "add.s64 b, %65, 256;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, a, b, add, 1, 1, 0, 1;\n"
      "add.s64 a, %64, 6;\n"
      "add.s64 b, %65, 384;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, a, b, add, 1, 1, 0, 1;\n"
      "}\n"
      : "+f"(key_gradient[0]), "+f"(key_gradient[1]), "+f"(key_gradient[2]), "+f"(key_gradient[3]),
        "+f"(key_gradient[4]), "+f"(key_gradient[5]), "+f"(key_gradient[6]), "+f"(key_gradient[7]),
        "+f"(key_gradient[8]), "+f"(key_gradient[9]), "+f"(key_gradient[10]), "+f"(key_gradient[11]),
        "+f"(key_gradient[12]), "+f"(key_gradient[13]), "+f"(key_gradient[14]), "+f"(key_gradient[15]),
        "+f"(key_gradient[16]), "+f"(key_gradient[17]), "+f"(key_gradient[18]), "+f"(key_gradient[19]),
        "+f"(key_gradient[20]), "+f"(key_gradient[21]), "+f"(key_gradient[22]), "+f"(key_gradient[23]),
        "+f"(key_gradient[24]), "+f"(key_gradient[25]), "+f"(key_gradient[26]), "+f"(key_gradient[27]),
        "+f"(key_gradient[28]), "+f"(key_gradient[29]), "+f"(key_gradient[30]), "+f"(key_gradient[31]),
        "+f"(key_gradient[32]), "+f"(key_gradient[33]), "+f"(key_gradient[34]), "+f"(key_gradient[35]),
        "+f"(key_gradient[36]), "+f"(key_gradient[37]), "+f"(key_gradient[38]), "+f"(key_gradient[39]),
        "+f"(key_gradient[40]), "+f"(key_gradient[41]), "+f"(key_gradient[42]), "+f"(key_gradient[43]),
        "+f"(key_gradient[44]), "+f"(key_gradient[45]), "+f"(key_gradient[46]), "+f"(key_gradient[47]),
        "+f"(key_gradient[48]), "+f"(key_gradient[49]), "+f"(key_gradient[50]), "+f"(key_gradient[51]),
        "+f"(key_gradient[52]), "+f"(key_gradient[53]), "+f"(key_gradient[54]), "+f"(key_gradient[55]),
        "+f"(key_gradient[56]), "+f"(key_gradient[57]), "+f"(key_gradient[58]), "+f"(key_gradient[59]),
        "+f"(key_gradient[60]), "+f"(key_gradient[61]), "+f"(key_gradient[62]), "+f"(key_gradient[63])
      : "l"(score_gradients), "l"(query), "r"(static_cast<u32>(accumulate))
      : "memory");
}

/// key_gradient += dS^T Q; 64 keys of a warpgroup, dS^T as operand fragments.
__device__ __forceinline__ void accumulate_key_gradient(float (&key_gradient)[64], const u32 (&score_gradients)[16],
                                                        u64 query, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      ".reg .pred start;\n"
      ".reg .b64 b;\n"
      "setp.ne.b32 start, %81, 0;\n"
      "setp.eq.b32 add, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %80, start, 1, 1, 1;\n"
      "add.s64 b, %80, 128;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%68, %69, %70, %71}, b, add, 1, 1, 1;\n"
      "add.s64 b, %80, 256;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%72, %73, %74, %75}, b, add, 1, 1, 1;\n"
      "add.s64 b, %80, 384;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%76, %77, %78, %79}, b, add, 1, 1, 1;\n"
      "}\n"
      : "+f"(key_gradient[0]), "+f"(key_gradient[1]), "+f"(key_gradient[2]), "+f"(key_gradient[3]),
        "+f"(key_gradient[4]), "+f"(key_gradient[5]), "+f"(key_gradient[6]), "+f"(key_gradient[7]),
        "+f"(key_gradient[8]), "+f"(key_gradient[9]), "+f"(key_gradient[10]), "+f"(key_gradient[11]),
        "+f"(key_gradient[12]), "+f"(key_gradient[13]), "+f"(key_gradient[14]), "+f"(key_gradient[15]),
        "+f"(key_gradient[16]), "+f"(key_gradient[17]), "+f"(key_gradient[18]), "+f"(key_gradient[19]),
        "+f"(key_gradient[20]), "+f"(key_gradient[21]), "+f"(key_gradient[22]), "+f"(key_gradient[23]),
        "+f"(key_gradient[24]), "+f"(key_gradient[25]), "+f"(key_gradient[26]), "+f"(key_gradient[27]),
        "+f"(key_gradient[28]), "+f"(key_gradient[29]), "+f"(key_gradient[30]), "+f"(key_gradient[31]),
        "+f"(key_gradient[32]), "+f"(key_gradient[33]), "+f"(key_gradient[34]), "+f"(key_gradient[35]),
        "+f"(key_gradient[36]), "+f"(key_gradient[37]), "+f"(key_gradient[38]), "+f"(key_gradient[39]),
        "+f"(key_gradient[40]), "+f"(key_gradient[41]), "+f"(key_gradient[42]), "+f"(key_gradient[43]),
        "+f"(key_gradient[44]), "+f"(key_gradient[45]), "+f"(key_gradient[46]), "+f"(key_gradient[47]),
        "+f"(key_gradient[48]), "+f"(key_gradient[49]), "+f"(key_gradient[50]), "+f"(key_gradient[51]),
        "+f"(key_gradient[52]), "+f"(key_gradient[53]), "+f"(key_gradient[54]), "+f"(key_gradient[55]),
        "+f"(key_gradient[56]), "+f"(key_gradient[57]), "+f"(key_gradient[58]), "+f"(key_gradient[59]),
        "+f"(key_gradient[60]), "+f"(key_gradient[61]), "+f"(key_gradient[62]), "+f"(key_gradient[63])
      : "r"(score_gradients[0]), "r"(score_gradients[1]), "r"(score_gradients[2]), "r"(score_gradients[3]),
        "r"(score_gradients[4]), "r"(score_gradients[5]), "r"(score_gradients[6]), "r"(score_gradients[7]),
        "r"(score_gradients[8]), "r"(score_gradients[9]), "r"(score_gradients[10]), "r"(score_gradients[11]),
        "r"(score_gradients[12]), "r"(score_gradients[13]), "r"(score_gradients[14]), "r"(score_gradients[15]),
        "l"(query), "r"(static_cast<u32>(accumulate))
      : "memory");
}

/// query_gradient = dS K; a warpgroup's share.
__device__ __forceinline__ void multiply_query_gradient(float (&query_gradient)[32], u64 score_gradients, u64 key) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      ".reg .pred start;\n"
      ".reg .b64 a, b;\n"
      "setp.ne.b32 start, 0, 0;\n"
      "setp.eq.b32 add, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, start, 1, 1, 1, 1;\n"
      "add.s64 a, %32, 128;\n"
      "add.s64 b, %33, 128;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 1, 1;\n"
      "add.s64 a, %32, 256;\n"
      "add.s64 b, %33, 256;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 1, 1;\n"
      "add.s64 a, %32, 384;\n"
      "add.s64 b, %33, 384;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 1, 1;\n"
      "add.s64 a, %32, 512;\n"
      "add.s64 b, %33, 512;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 1, 1;\n"
      "add.s64 a, %32, 640;\n"
      "add.s64 b, %33, 640;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 1, 1;\n"
      "add.s64 a, %32, 768;\n"
      "add.s64 b, %33, 768;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 1, 1;\n"
      "add.s64 a, %32, 896;\n"
      "add.s64 b, %33, 896;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 1, 1;\n"
      "}\n"
      : "+f"(query_gradient[0]), "+f"(query_gradient[1]), "+f"(query_gradient[2]), "+f"(query_gradient[3]),
        "+f"(query_gradient[4]), "+f"(query_gradient[5]), "+f"(query_gradient[6]), "+f"(query_gradient[7]),
        "+f"(query_gradient[8]), "+f"(query_gradient[9]), "+f"(query_gradient[10]), "+f"(query_gradient[11]),
        "+f"(query_gradient[12]), "+f"(query_gradient[13]), "+f"(query_gradient[14]), "+f"(query_gradient[15]),
        "+f"(query_gradient[16]), "+f"(query_gradient[17]), "+f"(query_gradient[18]), "+f"(query_gradient[19]),
        "+f"(query_gradient[20]), "+f"(query_gradient[21]), "+f"(query_gradient[22]), "+f"(query_gradient[23]),
        "+f"(query_gradient[24]), "+f"(query_gradient[25]), "+f"(query_gradient[26]), "+f"(query_gradient[27]),
        "+f"(query_gradient[28]), "+f"(query_gradient[29]), "+f"(query_gradient[30]), "+f"(query_gradient[31])
      : "l"(score_gradients), "l"(key)
      : "memory");
}

/// scores = Q K^T; 64 queries of a warpgroup.
__device__ __forceinline__ void multiply_row_scores(float (&scores)[32], u64 query, u64 key) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      ".reg .pred start;\n"
      ".reg .b64 a, b;\n"
      "setp.ne.b32 start, 0, 0;\n"
      "setp.eq.b32 add, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, start, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 2;\n"
      "add.s64 b, %33, 2;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 4;\n"
      "add.s64 b, %33, 4;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 6;\n"
      "add.s64 b, %33, 6;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1024;\n"
      "add.s64 b, %33, 512;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1026;\n"
      "add.s64 b, %33, 514;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1028;\n"
      "add.s64 b, %33, 516;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1030;\n"
      "add.s64 b, %33, 518;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(scores[0]), "+f"(scores[1]), "+f"(scores[2]), "+f"(scores[3]), "+f"(scores[4]), "+f"(scores[5]),
        "+f"(scores[6]), "+f"(scores[7]), "+f"(scores[8]), "+f"(scores[9]), "+f"(scores[10]), "+f"(scores[11]),
        "+f"(scores[12]), "+f"(scores[13]), "+f"(scores[14]), "+f"(scores[15]), "+f"(scores[16]), "+f"(scores[17]),
        "+f"(scores[18]), "+f"(scores[19]), "+f"(scores[20]), "+f"(scores[21]), "+f"(scores[22]), "+f"(scores[23]),
        "+f"(scores[24]), "+f"(scores[25]), "+f"(scores[26]), "+f"(scores[27]), "+f"(scores[28]), "+f"(scores[29]),
        "+f"(scores[30]), "+f"(scores[31])
      : "l"(query), "l"(key)
      : "memory");
}

/// weight_gradients = dO V^T; 64 queries of a warpgroup.
__device__ __forceinline__ void multiply_row_gradients(float (&weight_gradients)[32], u64 out_gradient, u64 value) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      ".reg .pred start;\n"
      ".reg .b64 a, b;\n"
      "setp.ne.b32 start, 0, 0;\n"
      "setp.eq.b32 add, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, start, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 2;\n"
      "add.s64 b, %33, 2;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 4;\n"
      "add.s64 b, %33, 4;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 6;\n"
      "add.s64 b, %33, 6;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1024;\n"
      "add.s64 b, %33, 512;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1026;\n"
      "add.s64 b, %33, 514;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1028;\n"
      "add.s64 b, %33, 516;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "add.s64 a, %32, 1030;\n"
      "add.s64 b, %33, 518;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, a, b, add, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(weight_gradients[0]), "+f"(weight_gradients[1]), "+f"(weight_gradients[2]), "+f"(weight_gradients[3]),
        "+f"(weight_gradients[4]), "+f"(weight_gradients[5]), "+f"(weight_gradients[6]), "+f"(weight_gradients[7]),
        "+f"(weight_gradients[8]), "+f"(weight_gradients[9]), "+f"(weight_gradients[10]), "+f"(weight_gradients[11]),
        "+f"(weight_gradients[12]), "+f"(weight_gradients[13]), "+f"(weight_gradients[14]), "+f"(weight_gradients[15]),
        "+f"(weight_gradients[16]), "+f"(weight_gradients[17]), "+f"(weight_gradients[18]), "+f"(weight_gradients[19]),
        "+f"(weight_gradients[20]), "+f"(weight_gradients[21]), "+f"(weight_gradients[22]), "+f"(weight_gradients[23]),
        "+f"(weight_gradients[24]), "+f"(weight_gradients[25]), "+f"(weight_gradients[26]), "+f"(weight_gradients[27]),
        "+f"(weight_gradients[28]), "+f"(weight_gradients[29]), "+f"(weight_gradients[30]), "+f"(weight_gradients[31])
      : "l"(out_gradient), "l"(value)
      : "memory");
}

/// query_gradient += dS K; 64 queries of a warpgroup, dS as operand fragments.
__device__ __forceinline__ void accumulate_query_gradient(float (&query_gradient)[64], const u32 (&score_gradients)[16],
                                                          u64 key, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      ".reg .pred start;\n"
      ".reg .b64 b;\n"
      "setp.ne.b32 start, %81, 0;\n"
      "setp.eq.b32 add, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %80, start, 1, 1, 1;\n"
      "add.s64 b, %80, 128;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%68, %69, %70, %71}, b, add, 1, 1, 1;\n"
      "add.s64 b, %80, 256;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%72, %73, %74, %75}, b, add, 1, 1, 1;\n"
      "add.s64 b, %80, 384;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%76, %77, %78, %79}, b, add, 1, 1, 1;\n"
      "}\n"
      : "+f"(query_gradient[0]), "+f"(query_gradient[1]), "+f"(query_gradient[2]), "+f"(query_gradient[3]),
        "+f"(query_gradient[4]), "+f"(query_gradient[5]), "+f"(query_gradient[6]), "+f"(query_gradient[7]),
        "+f"(query_gradient[8]), "+f"(query_gradient[9]), "+f"(query_gradient[10]), "+f"(query_gradient[11]),
        "+f"(query_gradient[12]), "+f"(query_gradient[13]), "+f"(query_gradient[14]), "+f"(query_gradient[15]),
        "+f"(query_gradient[16]), "+f"(query_gradient[17]), "+f"(query_gradient[18]), "+f"(query_gradient[19]),
        "+f"(query_gradient[20]), "+f"(query_gradient[21]), "+f"(query_gradient[22]), "+f"(query_gradient[23]),
        "+f"(query_gradient[24]), "+f"(query_gradient[25]), "+f"(query_gradient[26]), "+f"(query_gradient[27]),
        "+f"(query_gradient[28]), "+f"(query_gradient[29]), "+f"(query_gradient[30]), "+f"(query_gradient[31]),
        "+f"(query_gradient[32]), "+f"(query_gradient[33]), "+f"(query_gradient[34]), "+f"(query_gradient[35]),
        "+f"(query_gradient[36]), "+f"(query_gradient[37]), "+f"(query_gradient[38]), "+f"(query_gradient[39]),
        "+f"(query_gradient[40]), "+f"(query_gradient[41]), "+f"(query_gradient[42]), "+f"(query_gradient[43]),
        "+f"(query_gradient[44]), "+f"(query_gradient[45]), "+f"(query_gradient[46]), "+f"(query_gradient[47]),
        "+f"(query_gradient[48]), "+f"(query_gradient[49]), "+f"(query_gradient[50]), "+f"(query_gradient[51]),
        "+f"(query_gradient[52]), "+f"(query_gradient[53]), "+f"(query_gradient[54]), "+f"(query_gradient[55]),
        "+f"(query_gradient[56]), "+f"(query_gradient[57]), "+f"(query_gradient[58]), "+f"(query_gradient[59]),
        "+f"(query_gradient[60]), "+f"(query_gradient[61]), "+f"(query_gradient[62]), "+f"(query_gradient[63])
      : "r"(score_gradients[0]), "r"(score_gradients[1]), "r"(score_gradients[2]), "r"(score_gradients[3]),
        "r"(score_gradients[4]), "r"(score_gradients[5]), "r"(score_gradients[6]), "r"(score_gradients[7]),
        "r"(score_gradients[8]), "r"(score_gradients[9]), "r"(score_gradients[10]), "r"(score_gradients[11]),
        "r"(score_gradients[12]), "r"(score_gradients[13]), "r"(score_gradients[14]), "r"(score_gradients[15]),
        "l"(key), "r"(static_cast<u32>(accumulate))
      : "memory");
}

}  // namespace flashspan_device
