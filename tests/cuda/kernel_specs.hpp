// kernel_specs.hpp -- specs of kernels to compile, from mask and score text, as a call would choose them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "codegen/kernel/tile_config.hpp"
#include "codegen/mask/lowering.hpp"
#include "codegen/mask/parser.hpp"
#include "codegen/mask/simplify.hpp"

namespace flashspan::cuda {

/// Architectures that we serve.
inline constexpr std::array served_archs{Arch{80, 0},   Arch{86, 0},  Arch{89, 0},
                                         Arch{90, 'a'}, Arch{100, 0}, Arch{120, 0}};

/// Text of a mask or a score, with the names it may use.
struct ProgramText {
  const char* text;
  std::vector<mask::ScalarDeclaration> scalars;
  std::vector<mask::TensorDeclaration> tensors;

  [[nodiscard]] Result<mask::Program> program(mask::ProgramKind kind) const {
    const auto program = mask::parse(text, kind, scalars, tensors);
    if (!program) return program.error();
    return mask::simplify(*program);
  }
};

inline const ProgramText causal{"q + kv_len - q_len >= k", {}, {}};
inline const ProgramText causal_documents{
    "(q + kv_len - q_len >= k) & (doc[b, q] == doc[b, k])", {}, {{"doc", DType::i32, 2}}};
/// FlashMask's column intervals.
inline const ProgramText column_bounds{
    "(q < start[b, h, k]) | (q >= end[b, h, k])", {}, {{"start", DType::i32, 3}, {"end", DType::i32, 3}}};
inline const ProgramText softcap_and_alibi{
    "cap * tanh(score / cap) + slope[h] * (k - q)", {{"cap", mask::ValueType::real}}, {{"slope", DType::f32, 1}}};
inline const ProgramText relative_bias{"score + bias[h, q - k]", {}, {{"bias", DType::bf16, 2}}};
/// Lookups of each kind: by neither query nor key, by their distance, by both, by the key, by the query.
inline const ProgramText looked_up_scores{
    "score * factor[h] + bias[h, q - k] + pairs[q // 2, k // 2] + of_key[b, k] + of_query[q]",
    {},
    {{"factor", DType::f32, 1},
     {"bias", DType::bf16, 2},
     {"pairs", DType::f32, 2},
     {"of_key", DType::f32, 2},
     {"of_query", DType::f16, 1}}};

struct SpecRequest {
  Arch arch{80, 0};
  Direction direction = Direction::forward;
  DType dtype = DType::bf16;
  int head_dim_qk = 64;
  int head_dim_v = 64;
  bool aligned = true;
  bool few_rows = false;
  bool deterministic = false;
  const ProgramText* mask = &causal;  ///< null: every pair is visible
  const ProgramText* score = nullptr;
  const char* score_gradients = "";                           ///< as in KernelSpec; of a backward
  std::optional<mask::LoweringKind> lowering = std::nullopt;  ///< nothing: the one that a call chooses
  std::optional<TileConfig> forward_tile = std::nullopt;      ///< nothing: the default
  std::optional<TileConfig> backward_tile = std::nullopt;
};

/// The simplified program of the request's mask.
inline Result<mask::Program> mask_program_of(const SpecRequest& request) {
  static const ProgramText every_pair{"True", {}, {}};
  return (request.mask == nullptr ? every_pair : *request.mask).program(mask::ProgramKind::mask);
}

/// Error: those of the texts, of the lowering asked for and of default_tile().
inline Result<kernel::KernelSpec> make_spec(const SpecRequest& request) {
  kernel::KernelSpec spec;
  spec.direction = request.direction;
  spec.target = {DeviceKind::cuda, request.arch};
  spec.dtype = request.dtype;
  spec.head_dim_qk = request.head_dim_qk;
  spec.head_dim_v = request.head_dim_v;
  spec.aligned = request.aligned;
  const auto mask = mask_program_of(request);
  if (!mask) return mask.error();
  spec.mask = mask->to_signature();
  const auto lowering = request.lowering ? mask::lower_as(*mask, request.direction, *request.lowering)
                                         : Result<mask::Lowering>(mask::lower(*mask, request.direction));
  if (!lowering) return lowering.error();
  spec.lowering = lowering->kind;
  if (request.score != nullptr) {
    const auto score = request.score->program(mask::ProgramKind::score);
    if (!score) return score.error();
    spec.score = score->to_signature();
    if (request.direction == Direction::backward) spec.score_gradients = request.score_gradients;
  }
  if (spec.lowering == mask::LoweringKind::interpreted) return kernel::interpreted_of(spec).value();
  const kernel::FamilyNeeds needs{.deterministic = request.deterministic};
  spec.family = kernel::choose_family(spec, needs).family;
  spec.two_passes = kernel::takes_two_passes(spec, needs);
  spec.lowering = kernel::served_lowering(spec, spec.lowering);
  spec.split_rows = request.few_rows && kernel::can_split_rows(spec);
  const auto tile = kernel::default_tile(spec, mask::evaluates_in_few_registers(*mask));
  if (!tile) return tile.error();
  const auto& wanted = request.direction == Direction::forward ? request.forward_tile : request.backward_tile;
  spec.tile = wanted.value_or(*tile);
  return spec;
}

}  // namespace flashspan::cuda
