// plan_tiles.cuh -- which tiles hold a visible pair, listed per row of tiles. Three kernels, one after another:
// plan_classify, plan_evaluate, plan_lists. Between the first two and the last, entry `tile` of a row stands for that
// tile itself.
#pragma once

#include "plan/classify.cuh"
#include "plan/evaluate.cuh"
#include "plan/lists.cuh"
