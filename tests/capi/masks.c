/* masks.c -- every way to make a mask shows what it should. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "problem.h"

static const flashspan_shape shape = {sizeof shape, 1, heads, heads, length, length, head_dim, head_dim};

static int causal(int h, int q, int k) { return (void)h, k <= q; }
static int not_causal(int h, int q, int k) { return !causal(h, q, k); }
static int document(int h, int q, int k) { return (void)h, q / 4 == k / 4; }
static int causal_document(int h, int q, int k) { return causal(h, q, k) && document(h, q, k); }
static int causal_or_document(int h, int q, int k) { return causal(h, q, k) || document(h, q, k); }
static int causal_until_four(int h, int q, int k) { return causal(h, q, k) && (k >= 2 || q < 4); }
static int from_one_to_four(int h, int q, int k) { return (void)h, (void)q, 1 <= k && k < 4; }
static int first_rows_only(int h, int q, int k) { return (void)h, q < 3 && k < 2; }
static int even_positions(int h, int q, int k) { return (void)h, 2 * q >= 3 * k; }
static int even_positions_and_buckets(int h, int q, int k) { return even_positions(h, q, k) && q % 2 == k % 2; }
static int first_block(int h, int q, int k) { return (void)h, (void)q, k < 2; }
static int first_block_and_causal(int h, int q, int k) { return first_block(h, q, k) && causal(h, q, k); }
static int head_limit(int h, int q, int k) { return (void)q, k < 2 + 3 * h; }

void check_mask(flashspan_attention* attention, const flashspan_mask* mask, visible_function visible) {
  static problem p;
  make_problem(&p);
  flashspan_forward_call call = forward_of(&p);
  call.mask = mask;
  CHECK_OK(flashspan_forward_workspace_bytes(attention, &call, &call.workspace_bytes));
  call.workspace = malloc((size_t)call.workspace_bytes + 1);
  CHECK_OK(flashspan_forward(attention, &call));
  free(call.workspace);
  double out[elements], lse[rows];
  reference(&p, visible, NULL, 1, out, lse);
  for (int i = 0; i < elements; ++i) CHECK(fabs(p.out[i] - out[i]) < 1e-5);
  for (int i = 0; i < rows; ++i) CHECK(p.lse[i] == lse[i] || fabs(p.lse[i] - lse[i]) < 1e-5);
}

/* Checks the mask and frees it. */
static void expect(flashspan_attention* attention, flashspan_mask* mask, visible_function visible) {
  CHECK(mask != NULL);
  if (mask != NULL) check_mask(attention, mask, visible);
  flashspan_mask_free(mask);
}

static void test_expressions(flashspan_attention* attention) {
  int32_t ids[length] = {0, 0, 0, 0, 1, 1};
  tensor ids_t;
  describe(&ids_t, ids, int32, SHAPE(length));
  const flashspan_named_tensor doc = {"doc", &ids_t.dl};
  flashspan_mask *first = NULL, *second = NULL, *made = NULL;
  CHECK_OK(flashspan_mask_parse("causal", NULL, 0, NULL, 0, &first));
  CHECK_OK(flashspan_mask_parse("doc[q] == doc[k]", &doc, 1, NULL, 0, &second));
  check_mask(attention, first, causal);
  CHECK_OK(flashspan_mask_and(first, second, &made));
  expect(attention, made, causal_document);
  CHECK_OK(flashspan_mask_or(first, second, &made));
  expect(attention, made, causal_or_document);
  CHECK_OK(flashspan_mask_not(first, &made));
  expect(attention, made, not_causal);
  CHECK_OK(flashspan_mask_to(second, cpu, &made));
  memset(ids, 0, sizeof ids); /* the copy has its own */
  expect(attention, made, document);
  flashspan_mask_free(second);
  flashspan_mask_free(first);

  const flashspan_named_scalar scalars[] = {{"first", 0, 2, 0}, {"step", 1, 0, 3.0}};
  CHECK_OK(flashspan_mask_parse("k < first + step * h", NULL, 0, scalars, 2, &made));
  char* text = NULL;
  CHECK_OK(flashspan_mask_text(made, &text));
  CHECK(strstr(text, "first") != NULL);
  flashspan_free_text(text);
  expect(attention, made, head_limit);
}

static void test_index_arrays(flashspan_attention* attention) {
  flashspan_mask* made = NULL;
  tensor a, b, c, d;
  int32_t starts[length] = {4, 4, 6, 6, 6, 6};
  describe(&a, starts, int32, SHAPE(1, 1, length, 1));
  CHECK_OK(flashspan_mask_flashmask(&shape, &a.dl, 1, &made));
  expect(attention, made, causal_until_four);

  int32_t ranges[length][2], offsets[length + 1];
  for (int q = 0; q < length; ++q) ranges[q][0] = 1, ranges[q][1] = 4, offsets[q] = q;
  offsets[length] = length;
  describe(&a, ranges, int32, SHAPE(1, 1, length, 1, 2));
  CHECK_OK(flashspan_mask_key_ranges(&shape, NULL, &a.dl, &made));
  expect(attention, made, from_one_to_four);
  describe(&a, ranges, int32, SHAPE(length, 2));
  describe(&b, offsets, int32, SHAPE(1, 1, length + 1));
  CHECK_OK(flashspan_mask_key_ranges(&shape, &b.dl, &a.dl, &made));
  expect(attention, made, from_one_to_four);

  int32_t q_range[2] = {0, 3}, k_range[2] = {0, 2}, type[1] = {0};
  describe(&a, q_range, int32, SHAPE(1, 2));
  describe(&b, k_range, int32, SHAPE(1, 2));
  describe(&c, type, int32, SHAPE(1));
  CHECK_OK(flashspan_mask_slices(&shape, &a.dl, &b.dl, &c.dl, &made));
  expect(attention, made, first_rows_only);

  int32_t q_idx[length], k_idx[length], bucket[length];
  for (int i = 0; i < length; ++i) q_idx[i] = 2 * i, k_idx[i] = 3 * i, bucket[i] = i % 2;
  describe(&a, q_idx, int32, SHAPE(1, 1, length));
  describe(&b, k_idx, int32, SHAPE(1, 1, length));
  describe(&c, bucket, int32, SHAPE(1, 1, length));
  d = c;
  d.dl.shape = d.shape;
  CHECK_OK(flashspan_mask_scfa(&shape, &a.dl, &b.dl, NULL, NULL, 0, &made));
  expect(attention, made, even_positions);
  CHECK_OK(flashspan_mask_scfa(&shape, &a.dl, &b.dl, &c.dl, &d.dl, 0, &made));
  expect(attention, made, even_positions_and_buckets);

  int32_t counts[3] = {1, 1, 1}, indices[3] = {0, 0, 0};
  describe(&a, counts, int32, SHAPE(1, 1, 3));
  describe(&b, indices, int32, SHAPE(1, 1, 3, 1));
  CHECK_OK(flashspan_mask_block_list(&shape, &a.dl, &b.dl, 2, 2, NULL, &made));
  expect(attention, made, first_block);
  flashspan_mask* predicate = NULL;
  CHECK_OK(flashspan_mask_parse("q >= k", NULL, 0, NULL, 0, &predicate));
  CHECK_OK(flashspan_mask_block_list(&shape, &a.dl, &b.dl, 2, 2, predicate, &made));
  flashspan_mask_free(predicate);
  expect(attention, made, first_block_and_causal);
}

void test_masks(flashspan_attention* attention) {
  test_expressions(attention);
  test_index_arrays(attention);
}
