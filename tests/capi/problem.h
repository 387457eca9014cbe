/* problem.h -- one small problem of attention, its tensors on the CPU, and what must come out of it. */
#ifndef FLASHSPAN_TESTS_CAPI_PROBLEM_H_
#define FLASHSPAN_TESTS_CAPI_PROBLEM_H_

#include "tensors.h"

enum { heads = 2, length = 6, head_dim = 16, elements = heads * length * head_dim, rows = heads * length };

/* Whether query q of head h sees key k. */
typedef int (*visible_function)(int h, int q, int k);

typedef struct problem {
  float query[elements], key[elements], value[elements], out[elements], lse[rows];
  float out_gradient[elements], lse_gradient[rows];
  float query_gradient[elements], key_gradient[elements], value_gradient[elements];
  float sink[heads], sink_gradient[heads];
  tensor query_t, key_t, value_t, out_t, lse_t, out_gradient_t, lse_gradient_t;
  tensor query_gradient_t, key_gradient_t, value_gradient_t, sink_t, sink_gradient_t;
} problem;

void make_problem(problem* to);
/* Calls over the problem's tensors, without mask, sink and workspace. */
flashspan_forward_call forward_of(problem* of);
flashspan_backward_call backward_of(problem* of);

/* The loss sum(out * out_gradient) + sum(lse * lse_gradient), in binary64, for scores times `factor`; writes out and
 * lse if they are given. */
double reference(const problem* of, visible_function visible, const float* sink, double factor, double* out,
                 double* lse);

/* Runs the forward under the mask and compares it with the reference. */
void check_mask(flashspan_attention* attention, const flashspan_mask* mask, visible_function visible);

void test_masks(flashspan_attention* attention);
void test_attention(flashspan_attention* attention);
void test_gpu(void); /* does nothing where there is none */
void test_errors(flashspan_attention* attention);

#endif
