// plan_tiles.cuh -- which tiles hold a visible pair, listed per row of tiles. Two kernels, one after another:
// plan_classify and plan_lists. Until its row is listed, entry `tile` of a row stands for that tile itself.
#pragma once

#include "plan/classify.cuh"
#include "plan/open_tiles.cuh"
