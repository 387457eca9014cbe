// mask.cpp -- masks and scores.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "capi/handles.hpp"
#include "capi/tensors.hpp"

namespace flashspan::capi {
namespace {

/// What an expression is bound to.
struct NamedData {
  std::vector<NamedTensor> tensors;
  std::vector<NamedScalar> scalars;
};

Result<NamedData> read_data(const flashspan_named_tensor* tensors, std::size_t tensor_count,
                            const flashspan_named_scalar* scalars, std::size_t scalar_count) {
  auto named = named_tensors("tensors", tensors, tensor_count);
  if (!named) return named.error();
  if (scalars == nullptr && scalar_count != 0) return null_argument("scalars");
  NamedData data{*std::move(named), {}};
  for (std::size_t i = 0; i < scalar_count; ++i) {
    const flashspan_named_scalar& scalar = scalars[i];
    if (scalar.name == nullptr) return null_argument("scalars");
    if (scalar.is_real != 0) {
      data.scalars.push_back({scalar.name, scalar.real});
    } else {
      data.scalars.push_back({scalar.name, scalar.integer});
    }
  }
  return data;
}

/// For builders of masks over a shape: reads the shape, then calls `build(shape, reader)`.
template <typename Build>
flashspan_status build_mask(const flashspan_shape* shape, flashspan_mask** mask, const Build& build) {
  return guarded([&]() -> Result<void> {
    const auto read = shape_of(shape);
    if (!read) return read.error();
    TensorReader reader;
    Result<Mask> built = build(*read, reader);
    if (!reader.done()) return reader.done();
    return give(mask, std::move(built));
  });
}

}  // namespace
}  // namespace flashspan::capi

using namespace flashspan;
using namespace flashspan::capi;

flashspan_status flashspan_mask_parse(const char* text, const flashspan_named_tensor* tensors, size_t tensor_count,
                                      const flashspan_named_scalar* scalars, size_t scalar_count,
                                      flashspan_mask** mask) {
  return guarded([&]() -> Result<void> {
    if (text == nullptr) return null_argument("text");
    const auto data = read_data(tensors, tensor_count, scalars, scalar_count);
    if (!data) return data.error();
    return give(mask, Mask::parse(text, data->tensors, data->scalars));
  });
}

flashspan_status flashspan_mask_flashmask(const flashspan_shape* shape, const DLTensor* startend_row_indices,
                                          int causal, flashspan_mask** mask) {
  return build_mask(shape, mask, [&](const AttentionShape& sizes, TensorReader& reader) {
    return Mask::flashmask(sizes, reader.read("startend_row_indices", startend_row_indices), causal != 0);
  });
}

flashspan_status flashspan_mask_key_ranges(const flashspan_shape* shape, const DLTensor* offsets,
                                           const DLTensor* ranges, flashspan_mask** mask) {
  return build_mask(shape, mask, [&](const AttentionShape& sizes, TensorReader& reader) {
    const TensorView pairs = reader.read("ranges", ranges);
    if (offsets == nullptr) return Mask::key_ranges(sizes, pairs);
    return Mask::key_ranges_csr(sizes, reader.read("offsets", offsets), pairs);
  });
}

flashspan_status flashspan_mask_slices(const flashspan_shape* shape, const DLTensor* q_ranges, const DLTensor* k_ranges,
                                       const DLTensor* types, flashspan_mask** mask) {
  return build_mask(shape, mask, [&](const AttentionShape& sizes, TensorReader& reader) {
    const TensorView of_queries = reader.read("q_ranges", q_ranges);
    const TensorView of_keys = reader.read("k_ranges", k_ranges);
    return Mask::slices(sizes, of_queries, of_keys, reader.read("types", types));
  });
}

flashspan_status flashspan_mask_scfa(const flashspan_shape* shape, const DLTensor* q_idx, const DLTensor* k_idx,
                                     const DLTensor* q_hash, const DLTensor* k_hash, int strict,
                                     flashspan_mask** mask) {
  return build_mask(shape, mask, [&](const AttentionShape& sizes, TensorReader& reader) {
    const TensorView queries = reader.read("q_idx", q_idx);
    const TensorView keys = reader.read("k_idx", k_idx);
    if (q_hash == nullptr && k_hash == nullptr) return Mask::scfa_index(sizes, queries, keys, strict != 0);
    const TensorView of_queries = reader.read("q_hash", q_hash);
    return Mask::scfa_hash(sizes, queries, keys, of_queries, reader.read("k_hash", k_hash), strict != 0);
  });
}

flashspan_status flashspan_mask_block_list(const flashspan_shape* shape, const DLTensor* counts,
                                           const DLTensor* indices, int64_t block_q, int64_t block_k,
                                           const flashspan_mask* predicate, flashspan_mask** mask) {
  return build_mask(shape, mask, [&](const AttentionShape& sizes, TensorReader& reader) {
    const TensorView per_row = reader.read("counts", counts);
    const TensorView blocks = reader.read("indices", indices);
    return Mask::block_list(sizes, per_row, blocks, block_q, block_k,
                            predicate != nullptr ? &predicate->value : nullptr);
  });
}

flashspan_status flashspan_mask_and(const flashspan_mask* left, const flashspan_mask* right, flashspan_mask** mask) {
  return guarded([&]() -> Result<void> {
    if (left == nullptr || right == nullptr) return null_argument("mask");
    return give(mask, Result<Mask>(left->value & right->value));
  });
}

flashspan_status flashspan_mask_or(const flashspan_mask* left, const flashspan_mask* right, flashspan_mask** mask) {
  return guarded([&]() -> Result<void> {
    if (left == nullptr || right == nullptr) return null_argument("mask");
    return give(mask, Result<Mask>(left->value | right->value));
  });
}

flashspan_status flashspan_mask_not(const flashspan_mask* of, flashspan_mask** mask) {
  return guarded([&]() -> Result<void> {
    if (of == nullptr) return null_argument("mask");
    return give(mask, Result<Mask>(~of->value));
  });
}

flashspan_status flashspan_mask_to(const flashspan_mask* of, DLDevice device, flashspan_mask** mask) {
  return guarded([&]() -> Result<void> {
    if (of == nullptr) return null_argument("mask");
    const auto place = device_of("device", device);
    if (!place) return place.error();
    return give(mask, of->value.to(*place));
  });
}

flashspan_status flashspan_mask_text(const flashspan_mask* mask, char** text) {
  return guarded([&]() -> Result<void> {
    if (mask == nullptr) return null_argument("mask");
    return give_text(text, mask->value.text());
  });
}

void flashspan_mask_free(flashspan_mask* mask) { delete mask; }

flashspan_status flashspan_score_parse(const char* text, const flashspan_named_tensor* tensors, size_t tensor_count,
                                       const flashspan_named_scalar* scalars, size_t scalar_count,
                                       flashspan_score** score) {
  return guarded([&]() -> Result<void> {
    if (text == nullptr) return null_argument("text");
    const auto data = read_data(tensors, tensor_count, scalars, scalar_count);
    if (!data) return data.error();
    return give(score, Score::parse(text, data->tensors, data->scalars));
  });
}

flashspan_status flashspan_score_to(const flashspan_score* of, DLDevice device, flashspan_score** score) {
  return guarded([&]() -> Result<void> {
    if (of == nullptr) return null_argument("score");
    const auto place = device_of("device", device);
    if (!place) return place.error();
    return give(score, of->value.to(*place));
  });
}

void flashspan_score_free(flashspan_score* score) { delete score; }
