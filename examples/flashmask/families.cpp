// families.cpp -- arrays and rules of the mask families (table in arXiv 2410.01359, section 4 and figure 1).
#include "examples/flashmask/families.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

namespace flashspan::flashmask {
namespace {

using tool::HostArray;
using Index = std::int64_t;

constexpr Index global_tokens = 16;
constexpr Index hash_buckets = 16;

/// What a position of a sample belongs to.
struct Place {
  Index begin = 0, end = 0;  ///< its document
  Index prefix_end = 0;      ///< end of the document's prefix, which is its question too
  Index answer = -1;         ///< number of its answer in the document; -1 in the question
  Index answer_end = 0;      ///< end of its answer; the document's end in the question
  bool dropped = false;      ///< document hidden by the QK-sparse mask
};

/// A sample position by position.
struct Layout {
  Index length = 0, first_length = 0, last_begin = 0;
  std::vector<Place> places;
};

/// Same numbers on every machine, unlike the standard distributions.
Index random_below(std::mt19937_64& generator, Index bound) {
  return static_cast<Index>(generator() % static_cast<std::uint64_t>(bound));
}

/// Cuts what follows the question into 2 to 6 answers at random places.
void place_answers(std::vector<Place>& places, Index begin, Index end, std::mt19937_64& generator) {
  std::vector<Index> cuts{begin, end};
  const Index answers = 2 + random_below(generator, 5);
  for (Index answer = 1; answer < answers && end > begin; ++answer) {
    cuts.push_back(begin + random_below(generator, end - begin));
  }
  std::sort(cuts.begin(), cuts.end());
  for (std::size_t answer = 0; answer + 1 < cuts.size(); ++answer) {
    for (Index at = cuts[answer]; at < cuts[answer + 1]; ++at) {
      places[static_cast<std::size_t>(at)].answer = static_cast<Index>(answer);
      places[static_cast<std::size_t>(at)].answer_end = cuts[answer + 1];
    }
  }
}

Layout layout_of(const Sample& sample, std::uint64_t seed) {
  Layout layout;
  std::mt19937_64 generator(seed);
  layout.first_length = sample.front().length;
  for (const Document& document : sample) {
    const Index begin = layout.length, end = begin + document.length;
    const Index prefix_end = std::min(end, begin + document.prefix);
    layout.last_begin = begin;
    layout.length = end;
    layout.places.resize(static_cast<std::size_t>(end), Place{begin, end, prefix_end, -1, end, document.dropped});
    place_answers(layout.places, prefix_end, end, generator);
  }
  return layout;
}

using Layouts = std::shared_ptr<const std::vector<Layout>>;

const Place& place_at(const Layouts& layouts, Index batch, Index position) {
  return (*layouts)[static_cast<std::size_t>(batch)].places[static_cast<std::size_t>(position)];
}

/// Masked row intervals of one key, in the order of startend_row_indices; unused channels are dropped.
using Bounds = std::array<Index, 4>;

/// Sets the FlashMask array from a function of batch, head and key.
template <typename BoundsOf>
void set_flashmask(FamilyMask& family, const Layouts& layouts, Index heads, bool causal, Index channels,
                   const BoundsOf& bounds_of) {
  const auto batch = static_cast<Index>(layouts->size());
  const Index length = layouts->front().length;
  HostArray array = HostArray::zeros(DType::i32, {batch, heads, length, channels});
  auto* next = array.data<std::int32_t>();
  for (Index key = 0; key < batch * heads * length; ++key) {
    const Bounds bounds = bounds_of(key / (heads * length), key / length % heads, key % length);
    next = std::transform(bounds.begin(), bounds.begin() + channels, next,
                          [](Index bound) { return static_cast<std::int32_t>(bound); });
  }
  family.causal = causal;
  family.arrays.emplace("flashmask", std::move(array));
}

void build_sliding_window(FamilyMask& family, const Layouts& layouts) {
  const Index length = layouts->front().length, window = length / 16;
  set_flashmask(family, layouts, 1, true, 1,
                [=](Index, Index, Index k) { return Bounds{std::min(k + window, length)}; });
  family.visible = [=](Index, Index, Index q, Index k) { return q - window < k && k <= q; };
}

void build_causal_document(FamilyMask& family, const Layouts& layouts) {
  set_flashmask(family, layouts, 1, true, 1,
                [&](Index b, Index, Index k) { return Bounds{place_at(layouts, b, k).end}; });
  family.visible = [=](Index b, Index, Index q, Index k) {
    return k <= q && place_at(layouts, b, q).begin == place_at(layouts, b, k).begin;
  };
}

void build_document(FamilyMask& family, const Layouts& layouts) {
  set_flashmask(family, layouts, 1, false, 2, [&](Index b, Index, Index k) {
    return Bounds{place_at(layouts, b, k).end, place_at(layouts, b, k).begin};
  });
  family.visible = [=](Index b, Index, Index q, Index k) {
    return place_at(layouts, b, q).begin == place_at(layouts, b, k).begin;
  };
}

/// The benchmark's generator adds up L_1 ... L_i for the start of document i where L_0 ... L_(i-1) was meant.
void build_document_as_timed(FamilyMask& family, const Layouts& layouts) {
  set_flashmask(family, layouts, 1, false, 2, [&](Index b, Index, Index k) {
    const Place& place = place_at(layouts, b, k);
    const Index shift = place.end - place.begin - (*layouts)[static_cast<std::size_t>(b)].first_length;
    return Bounds{place.end, place.begin + shift};
  });
  family.visible = [=](Index b, Index, Index q, Index k) {
    const Index end = place_at(layouts, b, k).end;
    return end - (*layouts)[static_cast<std::size_t>(b)].first_length <= q && q < end;
  };
}

void build_share_question(FamilyMask& family, const Layouts& layouts) {
  set_flashmask(family, layouts, 1, true, 1,
                [&](Index b, Index, Index k) { return Bounds{place_at(layouts, b, k).answer_end}; });
  family.visible = [=](Index b, Index, Index q, Index k) {
    const Place &query = place_at(layouts, b, q), &key = place_at(layouts, b, k);
    return k <= q && query.begin == key.begin && (key.answer < 0 || key.answer == query.answer);
  };
}

void build_global_sliding_window(FamilyMask& family, const Layouts& layouts) {
  const Index length = layouts->front().length, window = length / 16;
  set_flashmask(family, layouts, 1, false, 4, [=](Index, Index, Index k) {
    const bool is_global = k < global_tokens, near_top = k <= global_tokens + window;
    return Bounds{is_global ? length : std::min(k + window + 1, length), length, near_top ? 0 : global_tokens,
                  near_top ? 0 : k - window};
  });
  family.visible = [=](Index, Index, Index q, Index k) {
    return std::abs(q - k) <= window || k < global_tokens || q < global_tokens;
  };
}

void build_causal_blockwise(FamilyMask& family, const Layouts& layouts) {
  set_flashmask(family, layouts, 1, true, 2, [&](Index b, Index, Index k) {
    const Layout& layout = (*layouts)[static_cast<std::size_t>(b)];
    const bool last = k >= layout.last_begin;
    return last ? Bounds{layout.length, layout.length} : Bounds{place_at(layouts, b, k).end, layout.last_begin};
  });
  family.visible = [=](Index b, Index, Index q, Index k) {
    const bool same = place_at(layouts, b, q).begin == place_at(layouts, b, k).begin;
    return k <= q && (same || q >= (*layouts)[static_cast<std::size_t>(b)].last_begin);
  };
}

void build_prefix_lm_document(FamilyMask& family, const Layouts& layouts) {
  set_flashmask(family, layouts, 1, false, 2, [&](Index b, Index, Index k) {
    const Place& place = place_at(layouts, b, k);
    return Bounds{place.end, k < place.prefix_end ? place.begin : k};
  });
  family.visible = [=](Index b, Index, Index q, Index k) {
    const Place& key = place_at(layouts, b, k);
    return place_at(layouts, b, q).begin == key.begin && (k < key.prefix_end || k <= q);
  };
}

void build_prefix_lm_causal(FamilyMask& family, const Layouts& layouts) {
  const Index length = layouts->front().length, prefix = length / 2;
  set_flashmask(family, layouts, 1, false, 2,
                [=](Index, Index, Index k) { return Bounds{length, k < prefix ? 0 : k}; });
  family.visible = [=](Index, Index, Index q, Index k) { return k < prefix || k <= q; };
}

void build_qk_sparse(FamilyMask& family, const Layouts& layouts) {
  set_flashmask(family, layouts, 1, true, 2, [&](Index b, Index, Index k) {
    const Place& place = place_at(layouts, b, k);
    return place.dropped ? Bounds{k, place.end} : Bounds{0, 0};
  });
  family.visible = [=](Index b, Index, Index q, Index k) {
    const Place& key = place_at(layouts, b, k);
    return k <= q && !(key.dropped && q < key.end);
  };
}

/// Tokens sorted by a hash of theirs; queries and keys are hashed apart (arXiv 2306.01160). A staircase along the
/// diagonal.
void build_hash_sparse(FamilyMask& family, const Layouts& layouts) {
  const auto batch = static_cast<Index>(layouts->size());
  const Index length = layouts->front().length;
  std::mt19937_64 generator(11);
  for (const auto& [index_name, hash_name] : {std::pair{"q_idx", "q_hash"}, {"k_idx", "k_hash"}}) {
    HostArray indices = HostArray::zeros(DType::i32, {batch, 1, length});
    HostArray hashes = HostArray::zeros(DType::i32, {batch, 1, length});
    for (Index b = 0; b < batch; ++b) {
      std::vector<std::int32_t> bucket(static_cast<std::size_t>(length)), order(bucket.size());
      for (std::int32_t& value : bucket) value = static_cast<std::int32_t>(random_below(generator, hash_buckets));
      std::iota(order.begin(), order.end(), 0);
      const auto hash_then_place = [&](std::int32_t token) {
        return std::pair{bucket[static_cast<std::size_t>(token)], token};
      };
      std::sort(order.begin(), order.end(),
                [&](std::int32_t left, std::int32_t right) { return hash_then_place(left) < hash_then_place(right); });
      for (Index at = 0; at < length; ++at) {
        const std::int32_t token = order[static_cast<std::size_t>(at)];
        indices.data<std::int32_t>()[b * length + at] = token;
        hashes.data<std::int32_t>()[b * length + at] = bucket[static_cast<std::size_t>(token)];
      }
    }
    family.arrays.emplace(index_name, std::move(indices));
    family.arrays.emplace(hash_name, std::move(hashes));
  }
  const auto arrays = std::make_shared<const std::map<std::string, HostArray>>(family.arrays);
  const auto* q_idx = arrays->at("q_idx").data<std::int32_t>();
  const auto* k_idx = arrays->at("k_idx").data<std::int32_t>();
  const auto* q_hash = arrays->at("q_hash").data<std::int32_t>();
  const auto* k_hash = arrays->at("k_hash").data<std::int32_t>();
  family.visible = [=, keep = arrays](Index b, Index, Index q, Index k) {
    const Index query = b * length + q, key = b * length + k;
    return q_hash[query] == k_hash[key] && q_idx[query] >= k_idx[key];
  };
}

/// From the middle on, every row evicts one of the keys that are still visible to it, for itself and all later rows.
void build_random_eviction(FamilyMask& family, const Layouts& layouts, Index heads) {
  const auto batch = static_cast<Index>(layouts->size());
  const Index length = layouts->front().length;
  std::mt19937_64 generator(12);
  auto evicted = std::make_shared<std::vector<Index>>(static_cast<std::size_t>(batch * heads * length), length + 1);
  for (Index head = 0; head < batch * heads; ++head) {
    std::vector<Index> kept(static_cast<std::size_t>(length / 2));
    std::iota(kept.begin(), kept.end(), 0);
    for (Index row = length / 2; row < length; ++row) {
      kept.push_back(row);
      const auto choice = static_cast<std::size_t>(random_below(generator, static_cast<Index>(kept.size())));
      (*evicted)[static_cast<std::size_t>(head * length + kept[choice])] = row;
      std::swap(kept[choice], kept.back());
      kept.pop_back();
    }
  }
  const auto evicted_at = [=](Index b, Index h, Index k) {
    return (*evicted)[static_cast<std::size_t>((b * heads + h) * length + k)];
  };
  set_flashmask(family, layouts, heads, true, 1,
                [&](Index b, Index h, Index k) { return Bounds{evicted_at(b, h, k)}; });
  family.visible = [=](Index b, Index h, Index q, Index k) { return k <= q && q < evicted_at(b, h, k); };
}

}  // namespace

const std::vector<Family>& all_families() {
  static const std::vector<Family> families{Family::full,
                                            Family::causal,
                                            Family::sliding_window,
                                            Family::causal_document,
                                            Family::document,
                                            Family::document_as_timed,
                                            Family::share_question,
                                            Family::global_sliding_window,
                                            Family::causal_blockwise,
                                            Family::prefix_lm_document,
                                            Family::prefix_lm_causal,
                                            Family::qk_sparse,
                                            Family::hash_sparse,
                                            Family::random_eviction};
  return families;
}

const char* to_string(Family family) {
  switch (family) {
    case Family::full:
      return "full";
    case Family::causal:
      return "causal";
    case Family::sliding_window:
      return "sliding_window";
    case Family::causal_document:
      return "causal_document";
    case Family::document:
      return "document";
    case Family::document_as_timed:
      return "document_as_timed";
    case Family::share_question:
      return "share_question";
    case Family::global_sliding_window:
      return "global_sliding_window";
    case Family::causal_blockwise:
      return "causal_blockwise";
    case Family::prefix_lm_document:
      return "prefix_lm_document";
    case Family::prefix_lm_causal:
      return "prefix_lm_causal";
    case Family::qk_sparse:
      return "qk_sparse";
    case Family::hash_sparse:
      return "hash_sparse";
    case Family::random_eviction:
      return "random_eviction";
  }
  return "unknown";
}

std::optional<double> paper_sparsity(Family family, std::int64_t length) {
  // Columns: 8192, 32768, 131072 tokens.
  const auto column = [&](double at_8k, double at_32k, double at_128k) -> std::optional<double> {
    if (length == 8192) return at_8k;
    if (length == 32768) return at_32k;
    if (length == 131072) return at_128k;
    return std::nullopt;
  };
  switch (family) {
    case Family::full:
      return column(0, 0, 0);
    case Family::causal:
      return column(.49, .50, .50);
    case Family::sliding_window:
      return column(.92, .94, .94);
    case Family::causal_document:
      return column(.86, .95, .95);
    case Family::document:
      return std::nullopt;  // the tables' row is of the mask below
    case Family::document_as_timed:
      return column(.74, .92, .91);
    case Family::share_question:
      return column(.91, .97, .97);
    case Family::global_sliding_window:
      return column(.84, .87, .88);
    case Family::causal_blockwise:
      return column(.67, .87, .87);
    case Family::prefix_lm_document:
      return column(.86, .95, .95);
    case Family::prefix_lm_causal:
      return column(.37, .37, .37);
    case Family::qk_sparse:
      return column(.52, .52, .52);
    case Family::hash_sparse:
      return std::nullopt;
    case Family::random_eviction:
      return column(.49, .50, .50);
  }
  return std::nullopt;
}

Result<Mask> FamilyMask::mask(const AttentionShape& shape) const {
  if (arrays.contains("flashmask")) return Mask::flashmask(shape, arrays.at("flashmask").view(), causal);
  if (arrays.contains("q_hash")) {
    return Mask::scfa_hash(shape, arrays.at("q_idx").view(), arrays.at("k_idx").view(), arrays.at("q_hash").view(),
                           arrays.at("k_hash").view());
  }
  return causal ? Mask::causal() : Mask::full();
}

FamilyMask build_family(Family family, const std::vector<Sample>& samples, std::int64_t heads) {
  std::vector<Layout> list;
  list.reserve(samples.size());
  for (std::size_t sample = 0; sample < samples.size(); ++sample) list.push_back(layout_of(samples[sample], sample));
  const auto layouts = std::make_shared<const std::vector<Layout>>(std::move(list));
  FamilyMask result;
  result.family = family;
  switch (family) {
    case Family::full:
      result.visible = [](Index, Index, Index, Index) { return true; };
      break;
    case Family::causal:
      result.causal = true;
      result.visible = [](Index, Index, Index q, Index k) { return k <= q; };
      break;
    case Family::sliding_window:
      build_sliding_window(result, layouts);
      break;
    case Family::causal_document:
      build_causal_document(result, layouts);
      break;
    case Family::document:
      build_document(result, layouts);
      break;
    case Family::document_as_timed:
      build_document_as_timed(result, layouts);
      break;
    case Family::share_question:
      build_share_question(result, layouts);
      break;
    case Family::global_sliding_window:
      build_global_sliding_window(result, layouts);
      break;
    case Family::causal_blockwise:
      build_causal_blockwise(result, layouts);
      break;
    case Family::prefix_lm_document:
      build_prefix_lm_document(result, layouts);
      break;
    case Family::prefix_lm_causal:
      build_prefix_lm_causal(result, layouts);
      break;
    case Family::qk_sparse:
      build_qk_sparse(result, layouts);
      break;
    case Family::hash_sparse:
      build_hash_sparse(result, layouts);
      break;
    case Family::random_eviction:
      build_random_eviction(result, layouts, heads);
      break;
  }
  return result;
}

}  // namespace flashspan::flashmask
