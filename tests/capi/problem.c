#include "problem.h"

#include <math.h>
#include <string.h>

void make_problem(problem* p) {
  memset(p, 0xff, sizeof *p); /* NaN in the results */
  fill(p->query, elements, 1);
  fill(p->key, elements, 2);
  fill(p->value, elements, 3);
  fill(p->out_gradient, elements, 4);
  fill(p->lse_gradient, rows, 5);
  fill(p->sink, heads, 6);
  const int64_t* matrix = SHAPE(1, heads, length, head_dim);
  describe(&p->query_t, p->query, float32, matrix);
  describe(&p->key_t, p->key, float32, matrix);
  describe(&p->value_t, p->value, float32, matrix);
  describe(&p->out_t, p->out, float32, matrix);
  describe(&p->out_gradient_t, p->out_gradient, float32, matrix);
  describe(&p->query_gradient_t, p->query_gradient, float32, matrix);
  describe(&p->key_gradient_t, p->key_gradient, float32, matrix);
  describe(&p->value_gradient_t, p->value_gradient, float32, matrix);
  describe(&p->lse_t, p->lse, float32, SHAPE(1, heads, length));
  describe(&p->lse_gradient_t, p->lse_gradient, float32, SHAPE(1, heads, length));
  describe(&p->sink_t, p->sink, float32, SHAPE(heads));
  describe(&p->sink_gradient_t, p->sink_gradient, float32, SHAPE(heads));
}

flashspan_forward_call forward_of(problem* p) {
  flashspan_forward_call call;
  memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.query = &p->query_t.dl;
  call.key = &p->key_t.dl;
  call.value = &p->value_t.dl;
  call.out = &p->out_t.dl;
  call.lse = &p->lse_t.dl;
  return call;
}

flashspan_backward_call backward_of(problem* p) {
  flashspan_backward_call call;
  memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.query = &p->query_t.dl;
  call.key = &p->key_t.dl;
  call.value = &p->value_t.dl;
  call.out = &p->out_t.dl;
  call.lse = &p->lse_t.dl;
  call.out_gradient = &p->out_gradient_t.dl;
  call.query_gradient = &p->query_gradient_t.dl;
  call.key_gradient = &p->key_gradient_t.dl;
  call.value_gradient = &p->value_gradient_t.dl;
  return call;
}

double reference(const problem* p, visible_function visible, const float* sink, double factor, double* out,
                 double* lse) {
  double loss = 0;
  for (int h = 0; h < heads; ++h) {
    for (int q = 0; q < length; ++q) {
      double weights[length], sum = sink != NULL ? exp((double)sink[h]) : 0;
      for (int k = 0; k < length; ++k) {
        double score = 0;
        for (int d = 0; d < head_dim; ++d) {
          score += (double)p->query[(h * length + q) * head_dim + d] * (double)p->key[(h * length + k) * head_dim + d];
        }
        weights[k] = visible == NULL || visible(h, q, k) ? exp(factor * score / sqrt(head_dim)) : 0;
        sum += weights[k];
      }
      const int row = h * length + q;
      if (lse != NULL) lse[row] = log(sum);
      loss += log(sum) * (double)p->lse_gradient[row];
      for (int d = 0; d < head_dim; ++d) {
        double value = 0;
        for (int k = 0; k < length; ++k) {
          if (sum > 0) value += weights[k] / sum * (double)p->value[(h * length + k) * head_dim + d];
        }
        if (out != NULL) out[row * head_dim + d] = value;
        loss += value * (double)p->out_gradient[row * head_dim + d];
      }
    }
  }
  return loss;
}
