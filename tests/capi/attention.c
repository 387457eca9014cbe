/* attention.c -- both directions with everything that a call can have; preparing, freezing, sharing a plan; a GPU. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "problem.h"

static int causal(int h, int q, int k) { return (void)h, k <= q; }
static int every_third(int h, int q, int k) { return (void)h, (q + k) % 3 == 0; }

/* d loss / d parameter by central differences, for one place of one tensor. */
static double slope(problem* p, float* parameter, const float* sink, double factor) {
  const float before = *parameter, step = 1.0f / 64;
  *parameter = before + step;
  const double above = reference(p, causal, sink, factor, NULL, NULL);
  *parameter = before - step;
  const double below = reference(p, causal, sink, factor, NULL, NULL);
  *parameter = before;
  return (above - below) / (2.0 * (double)step);
}

static void* workspace_of(int64_t bytes) {
  void* memory = malloc((size_t)bytes + 1);
  memset(memory, 0xff, (size_t)bytes);
  return memory;
}

/* A causal mask, half of every score by way of a number and a learned gain of 1, sinks, a gradient of the LSE: values
 * and all gradients. */
static void test_both_directions(flashspan_attention* attention, const flashspan_mask* mask) {
  static problem p;
  make_problem(&p);
  flashspan_score *parsed = NULL, *score = NULL;
  float one = 1, of_gain = NAN;
  tensor gain_t, of_gain_t;
  describe(&gain_t, &one, float32, SHAPE(1));
  describe(&of_gain_t, &of_gain, float32, SHAPE(1));
  const flashspan_named_tensor gain = {"gain", &gain_t.dl}, gain_gradient = {"gain", &of_gain_t.dl};
  const flashspan_named_scalar half = {"factor", 1, 0, 0.5};
  CHECK_OK(flashspan_score_parse("score * factor * gain[0]", &gain, 1, &half, 1, &parsed));
  CHECK_OK(flashspan_score_to(parsed, cpu, &score));
  flashspan_score_free(parsed);
  const float scale = 0.25f; /* the default, 1 / sqrt(16) */
  flashspan_forward_call forward = forward_of(&p);
  forward.mask = mask;
  forward.score = score;
  forward.sink = &p.sink_t.dl;
  forward.scale = &scale;
  flashspan_backward_call backward = backward_of(&p);
  backward.mask = mask;
  backward.score = score;
  backward.sink = &p.sink_t.dl;
  backward.scale = &scale;
  backward.lse_gradient = &p.lse_gradient_t.dl;
  backward.sink_gradient = &p.sink_gradient_t.dl;
  backward.deterministic = 1;
  backward.score_gradient_count = 1;
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT,
               flashspan_backward_workspace_bytes(attention, &backward, &backward.workspace_bytes));
  backward.score_gradients = &gain_gradient;
  CHECK_OK(flashspan_forward_workspace_bytes(attention, &forward, &forward.workspace_bytes));
  CHECK_OK(flashspan_backward_workspace_bytes(attention, &backward, &backward.workspace_bytes));
  forward.workspace = workspace_of(forward.workspace_bytes);
  backward.workspace = workspace_of(backward.workspace_bytes);
  CHECK_OK(flashspan_forward(attention, &forward));
  CHECK_OK(flashspan_backward(attention, &backward));
  free(forward.workspace);
  free(backward.workspace);
  flashspan_score_free(score);

  double out[elements], lse[rows];
  reference(&p, causal, p.sink, 0.5, out, lse);
  for (int i = 0; i < elements; ++i) CHECK(fabs(p.out[i] - out[i]) < 1e-5);
  for (int i = 0; i < rows; ++i) CHECK(fabs(p.lse[i] - lse[i]) < 1e-5);
  for (int i = 0; i < elements; i += 7) {
    CHECK(fabs(p.query_gradient[i] - slope(&p, &p.query[i], p.sink, 0.5)) < 1e-3);
    CHECK(fabs(p.key_gradient[i] - slope(&p, &p.key[i], p.sink, 0.5)) < 1e-3);
    CHECK(fabs(p.value_gradient[i] - slope(&p, &p.value[i], p.sink, 0.5)) < 1e-3);
  }
  for (int h = 0; h < heads; ++h) CHECK(fabs(p.sink_gradient[h] - slope(&p, &p.sink[h], p.sink, 0.5)) < 1e-3);
  const double step = 1.0 / 64, above = reference(&p, causal, p.sink, 0.5 * (1 + step), NULL, NULL);
  CHECK(fabs(of_gain - (above - reference(&p, causal, p.sink, 0.5 * (1 - step), NULL, NULL)) / (2 * step)) < 1e-3);
}

static void test_sharing_a_plan(flashspan_attention* attention, const flashspan_mask* mask) {
  static problem p;
  make_problem(&p);
  flashspan_tile_plan* plan = NULL;
  CHECK_OK(flashspan_tile_plan_create(&plan));
  flashspan_forward_call call = forward_of(&p);
  call.mask = mask;
  call.plan = plan;
  CHECK_OK(flashspan_forward_workspace_bytes(attention, &call, &call.workspace_bytes));
  void* const workspace = call.workspace = workspace_of(call.workspace_bytes);
  CHECK(!flashspan_tile_plan_is_made(plan));
  double out[elements];
  reference(&p, causal, NULL, 1, out, NULL);
  for (int layer = 0; layer < 3; ++layer) {
    memset(p.out, 0xff, sizeof p.out);
    CHECK_OK(flashspan_forward(attention, &call));
    CHECK(flashspan_tile_plan_is_made(plan));
    for (int i = 0; i < elements; ++i) CHECK(fabs(p.out[i] - out[i]) < 1e-5);
  }
  call.workspace = workspace_of(call.workspace_bytes);
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_forward(attention, &call));
  flashspan_tile_plan_reset(plan);
  CHECK_OK(flashspan_forward(attention, &call));
  free(call.workspace);
  free(workspace);
  flashspan_tile_plan_free(plan);
}

static void test_preparing_and_freezing(void) {
  static problem p;
  make_problem(&p);
  flashspan_options options = {.struct_size = sizeof options, .cache_dir = ""};
  flashspan_attention* attention = NULL;
  CHECK_OK(flashspan_attention_open(cpu, &options, &attention));
  flashspan_mask *known = NULL, *unknown = NULL;
  CHECK_OK(flashspan_mask_parse("causal", NULL, 0, NULL, 0, &known));
  CHECK_OK(flashspan_mask_parse("(q + k) % 3 == 0", NULL, 0, NULL, 0, &unknown));
  flashspan_forward_call forward = forward_of(&p);
  flashspan_backward_call backward = backward_of(&p);
  forward.mask = backward.mask = known;
  char* record = NULL;
  CHECK_OK(flashspan_prepare_forward(attention, &forward, &record));
  CHECK(strstr(record, "\"outcome\":\"built\"") != NULL);
  flashspan_free_text(record);
  CHECK_OK(flashspan_prepare_backward(attention, &backward, NULL));
  flashspan_forward_call bad = forward;
  bad.key = NULL;
  const flashspan_forward_call* forwards[] = {&forward, &bad};
  const flashspan_backward_call* backwards[] = {&backward};
  flashspan_status statuses[3];
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_prepare_all(attention, forwards, 2, backwards, 1, 60, statuses));
  CHECK(statuses[0] == FLASHSPAN_OK && statuses[1] == FLASHSPAN_BAD_ARGUMENT && statuses[2] == FLASHSPAN_OK);
  CHECK(strstr(flashspan_last_error(), "key") != NULL);

  forward.mask = unknown;
  CHECK_OK(flashspan_freeze(attention, FLASHSPAN_ON_MISS_REFUSE));
  CHECK_OK(flashspan_forward_workspace_bytes(attention, &forward, &forward.workspace_bytes));
  forward.workspace = workspace_of(forward.workspace_bytes);
  CHECK_STATUS(FLASHSPAN_NOT_PREPARED, flashspan_forward(attention, &forward));
  CHECK_OK(flashspan_freeze(attention, FLASHSPAN_ON_MISS_INTERPRET));
  CHECK_OK(flashspan_forward(attention, &forward));
  double out[elements];
  reference(&p, every_third, NULL, 1, out, NULL);
  for (int i = 0; i < elements; ++i) CHECK(fabs(p.out[i] - out[i]) < 1e-5);
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_freeze(attention, (flashspan_miss_policy)9));
  free(forward.workspace);
  flashspan_mask_free(known);
  flashspan_mask_free(unknown);
  flashspan_attention_close(attention);
}

/* bfloat16 by rounding towards zero, and back. */
static uint16_t to_bfloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}
static float from_bfloat16(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* One tensor of the problem on the device, as bfloat16. */
static flashspan_buffer* upload(DLDevice device, float* values, tensor* described) {
  uint16_t halves[elements];
  for (int i = 0; i < elements; ++i) {
    halves[i] = to_bfloat16(values[i]);
    values[i] = from_bfloat16(halves[i]);
  }
  flashspan_buffer* buffer = NULL;
  CHECK_OK(flashspan_buffer_allocate(device, sizeof halves, &buffer));
  CHECK_OK(flashspan_buffer_copy_from_host(buffer, halves, sizeof halves));
  const DLDataType bfloat16 = {kDLBfloat, 16, 1};
  describe(described, flashspan_buffer_data(buffer), bfloat16, SHAPE(1, heads, length, head_dim));
  described->dl.device = device;
  return buffer;
}

/* The forward on `device`, which may be a GPU that is not there. */
static void test_device(DLDevice device) {
  flashspan_attention* attention = NULL;
  const flashspan_options options = {.struct_size = sizeof options, .cache_dir = ""};
  const flashspan_status opened = flashspan_attention_open(device, &options, &attention);
  if (device.device_type != kDLCPU && opened == FLASHSPAN_NO_DEVICE) return;
  CHECK(opened == FLASHSPAN_OK);
  if (opened != FLASHSPAN_OK) return;
  static problem p;
  make_problem(&p);
  flashspan_buffer* buffers[] = {upload(device, p.query, &p.query_t), upload(device, p.key, &p.key_t),
                                 upload(device, p.value, &p.value_t), upload(device, p.out, &p.out_t)};
  flashspan_mask *on_cpu = NULL, *mask = NULL;
  CHECK_OK(flashspan_mask_parse("causal", NULL, 0, NULL, 0, &on_cpu));
  CHECK_OK(flashspan_mask_to(on_cpu, device, &mask));
  flashspan_forward_call call = forward_of(&p);
  call.lse = NULL;
  call.mask = mask;
  flashspan_buffer* workspace = NULL;
  CHECK_OK(flashspan_forward_workspace_bytes(attention, &call, &call.workspace_bytes));
  CHECK_OK(flashspan_buffer_allocate(device, call.workspace_bytes, &workspace));
  call.workspace = flashspan_buffer_data(workspace);
  CHECK_OK(flashspan_forward(attention, &call));
  CHECK_OK(flashspan_synchronize(device, NULL));
  uint16_t got[elements];
  double out[elements];
  CHECK_OK(flashspan_buffer_copy_to_host(buffers[3], got, sizeof got));
  reference(&p, causal, NULL, 1, out, NULL);
  for (int i = 0; i < elements; ++i) CHECK(fabs(from_bfloat16(got[i]) - out[i]) < 0.02);
  flashspan_attention_close(attention);
  flashspan_buffer_free(workspace);
  for (int i = 0; i < 4; ++i) flashspan_buffer_free(buffers[i]);
  flashspan_mask_free(mask);
  flashspan_mask_free(on_cpu);
}

static int told = 0;
static void count_candidate(void* user, int done, int all, const char* candidate) {
  CHECK(done <= all);
  CHECK(strstr(candidate, "\"outcome\"") != NULL);
  ++*(int*)user;
}

/* Two tiles beside the default, in both directions; then a call with one of them. */
static void test_tuning(flashspan_attention* attention, const flashspan_mask* mask) {
  static problem p;
  make_problem(&p);
  flashspan_forward_call forward = forward_of(&p);
  forward.mask = mask;
  flashspan_backward_call backward = backward_of(&p);
  backward.mask = mask;
  const flashspan_tile tiles[] = {{32, 32, 1, 1}, {48, 7, 1, 1}};
  flashspan_tune_options options = {sizeof options, tiles, 2, 0, 30, 0.1, 1, count_candidate, &told};
  char* report = NULL;
  CHECK_OK(flashspan_tune_forward(attention, &forward, &options, &report));
  CHECK(told == 3);
  CHECK(strstr(report, "\"remembered\":false") != NULL);
  CHECK(strstr(report, "\"outcome\":\"failed\"") != NULL); /* a tile that no kernel takes */
  flashspan_free_text(report);
  double out[elements];
  reference(&p, causal, NULL, 1, out, NULL);
  for (int i = 0; i < elements; ++i) CHECK(fabs(p.out[i] - out[i]) < 1e-5);
  CHECK_OK(flashspan_tune_backward(attention, &backward, &options, NULL));
  CHECK(told == 6);
  options.tiles = NULL;
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_tune_forward(attention, &forward, &options, NULL));

  forward.tile = &tiles[0];
  CHECK_OK(flashspan_forward_workspace_bytes(attention, &forward, &forward.workspace_bytes));
  forward.workspace = workspace_of(forward.workspace_bytes);
  memset(p.out, 0xff, sizeof p.out);
  CHECK_OK(flashspan_forward(attention, &forward));
  for (int i = 0; i < elements; ++i) CHECK(fabs(p.out[i] - out[i]) < 1e-5);
  forward.tile = &tiles[1];
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_forward(attention, &forward));
  free(forward.workspace);
}

void test_attention(flashspan_attention* attention) {
  flashspan_mask* mask = NULL;
  CHECK_OK(flashspan_mask_parse("causal", NULL, 0, NULL, 0, &mask));
  test_both_directions(attention, mask);
  test_sharing_a_plan(attention, mask);
  test_tuning(attention, mask);
  flashspan_mask_free(mask);
  test_preparing_and_freezing();
  test_device(cpu);
}

void test_gpu(void) {
  const DLDevice gpu = {kDLCUDA, 0};
  test_device(gpu);
}
