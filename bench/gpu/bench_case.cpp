// bench_case.cpp -- see bench_case.hpp.
#include "bench_case.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>

#include "plan_timer.hpp"

namespace flashspan::bench {
namespace {

constexpr double long_round_ms = 50;  // a round is at least this long, so that waiting for its end does not count

Error file_error(const std::filesystem::path& file, std::string got, std::string takes) {
  return {ErrorCode::io_error, file.string(), std::move(got), std::move(takes), ""};
}

Result<std::vector<char>> read_file(const std::filesystem::path& file, std::optional<std::int64_t> bytes) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream) return file_error(file, "no readable file", "a raw file of elements");
  std::vector<char> content(static_cast<std::size_t>(stream.tellg()));
  stream.seekg(0);
  stream.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (bytes && static_cast<std::int64_t>(content.size()) != *bytes) {
    return file_error(file, std::to_string(content.size()) + " bytes", std::to_string(*bytes) + " bytes");
  }
  return content;
}

/// "name=rest" taken apart.
Result<std::pair<std::string, std::string>> split(const std::string& text, const char* argument) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0) return Error{ErrorCode::bad_argument, argument, text, "name=value", ""};
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

/// Upper half of a binary32, which is a bfloat16 cut off: good enough for random numbers.
std::uint16_t bf16_bits(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<std::uint16_t>(bits >> 16);
}

/// Standard normal numbers, a block of them repeated: drawing 10^9 of them would take longer than timing.
std::vector<char> random_bytes(DType dtype, std::int64_t bytes, unsigned seed) {
  constexpr std::size_t block = 1 << 20;
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<char> content(static_cast<std::size_t>(bytes));
  std::vector<char> numbers(block * static_cast<std::size_t>(size_in_bytes(dtype)));
  for (std::size_t i = 0; i < block; ++i) {
    const float value = normal(generator);
    if (dtype == DType::f32) {
      std::memcpy(numbers.data() + 4 * i, &value, 4);
    } else {
      // The same bits read as f16 are numbers of at most 2 in size once the exponent's top bit is cleared.
      const auto bits = static_cast<std::uint16_t>(dtype == DType::bf16 ? bf16_bits(value) : bf16_bits(value) & 0xbfff);
      std::memcpy(numbers.data() + 2 * i, &bits, 2);
    }
  }
  for (std::size_t at = 0; at < content.size(); at += numbers.size()) {
    std::memcpy(content.data() + at, numbers.data(), std::min(numbers.size(), content.size() - at));
  }
  return content;
}

/// Median of what `measure` gives in `rounds` calls.
Result<double> median_of(int rounds, const std::function<Result<double>()>& measure) {
  std::vector<double> values;
  for (int round = 0; round < rounds; ++round) {
    const auto one = measure();
    if (!one) return one.error();
    values.push_back(*one);
  }
  std::nth_element(values.begin(), values.begin() + rounds / 2, values.end());
  return values[static_cast<std::size_t>(rounds / 2)];
}

}  // namespace

Result<Case::Tensor> Case::make(DType dtype, std::initializer_list<std::int64_t> shape) const {
  TensorView view = TensorView::contiguous(nullptr, dtype, shape, attention_.device());
  auto buffer = Buffer::allocate(attention_.device(), view.element_count() * size_in_bytes(dtype));
  if (!buffer) return buffer.error();
  view.data = buffer->data();
  return Tensor{*buffer, view};
}

Result<std::unique_ptr<Case>> Case::create(Attention attention, const CaseOptions& options) {
  std::unique_ptr<Case> one(new Case(std::move(attention)));
  one->has_backward_ = options.backward;
  one->backward_.deterministic = options.deterministic;
  one->forward_.tile = options.forward_tile;
  one->backward_.tile = options.backward_tile;
  if (auto made = one->allocate(options); !made) return made.error();
  if (auto filled = one->fill(options); !filled) return filled.error();
  if (auto bound = one->bind_mask(options); !bound) return bound.error();
  if (auto made = one->make_workspaces(); !made) return made.error();
  return one;
}

Result<void> Case::allocate(const CaseOptions& options) {
  const AttentionShape& s = options.shape;
  const auto query = {s.batch, s.query_heads, s.q_len, s.head_dim_qk};
  const auto key = {s.batch, s.kv_heads, s.kv_len, s.head_dim_qk};
  const auto value = {s.batch, s.kv_heads, s.kv_len, s.head_dim_v};
  const auto out = {s.batch, s.query_heads, s.q_len, s.head_dim_v};
  const auto place = [&](Tensor& tensor, DType dtype, std::initializer_list<std::int64_t> shape) -> Result<void> {
    auto made = make(dtype, shape);
    if (!made) return made.error();
    tensor = *made;
    return {};
  };
  for (const auto& [tensor, shape] : {std::pair{&query_, query}, {&key_, key}, {&value_, value}, {&out_, out}}) {
    if (auto placed = place(*tensor, options.dtype, shape); !placed) return placed.error();
  }
  for (const auto& [tensor, shape] :
       {std::pair{&query_gradient_, query}, {&key_gradient_, key}, {&value_gradient_, value}, {&out_gradient_, out}}) {
    if (!options.backward) break;
    if (auto placed = place(*tensor, options.dtype, shape); !placed) return placed.error();
  }
  return place(lse_, DType::f32, {s.batch, s.query_heads, s.q_len});
}

Result<void> Case::fill(const CaseOptions& options) {
  unsigned seed = 1;
  for (const auto& [name, tensor] :
       {std::pair<const char*, Tensor*>{"q", &query_}, {"k", &key_}, {"v", &value_}, {"do", &out_gradient_}}) {
    const std::int64_t bytes = tensor->buffer.bytes();
    if (bytes == 0) continue;  // the gradient of a case without a backward
    std::vector<char> content;
    if (options.inputs) {
      auto read = read_file(*options.inputs / name, bytes);
      if (!read) return read.error();
      content = *std::move(read);
    } else {
      content = random_bytes(options.dtype, bytes, seed++);
    }
    if (auto copied = tensor->buffer.copy_from_host(content.data(), bytes); !copied) return copied.error();
  }
  return {};
}

Result<void> Case::bind_mask(const CaseOptions& options) {
  std::vector<NamedTensor> tensors;
  for (const std::string& text : options.tensors) {
    const auto parts = split(text, "--tensor");
    if (!parts) return parts.error();
    const auto bytes = read_file(parts->second, std::nullopt);
    if (!bytes) return bytes.error();
    auto& values = mask_data_.emplace_back(bytes->size() / sizeof(std::int32_t));
    std::memcpy(values.data(), bytes->data(), values.size() * sizeof(std::int32_t));
    tensors.push_back(
        {parts->first, TensorView::contiguous(values.data(), DType::i32, {static_cast<std::int64_t>(values.size())})});
  }
  std::vector<NamedScalar> scalars;
  for (const std::string& text : options.scalars) {
    const auto parts = split(text, "--scalar");
    if (!parts) return parts.error();
    std::int64_t value = 0;
    const char* end = parts->second.data() + parts->second.size();
    const auto read = std::from_chars(parts->second.data(), end, value);
    if (read.ec != std::errc() || read.ptr != end) {
      return Error{ErrorCode::bad_argument, "--scalar " + parts->first, parts->second, "an integer", ""};
    }
    scalars.push_back({parts->first, value});
  }
  auto mask = Mask::parse(options.mask, tensors, scalars);
  if (!mask) return mask.error();
  auto there = mask->to(attention_.device());
  if (!there) return there.error();
  mask_ = *there;
  return {};
}

Result<void> Case::make_workspaces() {
  forward_.query = backward_.query = query_.view;
  forward_.key = backward_.key = key_.view;
  forward_.value = backward_.value = value_.view;
  forward_.out = backward_.out = out_.view;
  forward_.lse = backward_.lse = lse_.view;
  forward_.mask = backward_.mask = &*mask_;
  backward_.out_gradient = out_gradient_.view;
  backward_.query_gradient = query_gradient_.view;
  backward_.key_gradient = key_gradient_.view;
  backward_.value_gradient = value_gradient_.view;
  const auto make_one = [&](auto& call, Buffer& workspace) -> Result<void> {
    const auto bytes = attention_.workspace_bytes(call);
    if (!bytes) return bytes.error();
    auto buffer = Buffer::allocate(attention_.device(), *bytes);
    if (!buffer) return buffer.error();
    workspace = *buffer;
    call.workspace = workspace.data();
    call.workspace_bytes = *bytes;
    return {};
  };
  if (auto made = make_one(forward_, forward_workspace_); !made) return made.error();
  if (!has_backward_) return {};
  return make_one(backward_, backward_workspace_);
}

Result<void> Case::launch(Direction direction) {
  return direction == Direction::forward ? attention_.forward(forward_) : attention_.backward(backward_);
}

Result<void> Case::run() {
  if (auto done = launch(Direction::forward); !done) return done.error();
  if (has_backward_) {
    if (auto done = launch(Direction::backward); !done) return done.error();
  }
  return synchronize(attention_.device());
}

Result<double> Case::round_ms(Direction direction, int launches) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < launches; ++i) {
    if (auto launched = launch(direction); !launched) return launched.error();
  }
  if (auto waited = synchronize(attention_.device()); !waited) return waited.error();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() / launches;
}

Result<double> Case::median_ms(Direction direction, int rounds) {
  const auto warm = round_ms(direction, 2);
  if (!warm) return warm.error();
  const int launches = std::clamp(static_cast<int>(std::ceil(long_round_ms / *warm)), 1, 1000);
  return median_of(rounds, [&] { return round_ms(direction, launches); });
}

Result<double> Case::host_microseconds(int rounds, int launches, bool share_plan) {
  TilePlan plan;
  ForwardCall call = forward_;
  if (share_plan) call.plan = &plan;
  return median_of(rounds, [&]() -> Result<double> {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; ++i) {
      if (auto launched = attention_.forward(call); !launched) return launched.error();
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (auto waited = synchronize(attention_.device()); !waited) return waited.error();
    return took.count() / launches;
  });
}

Result<double> Case::time_planning(int rounds) {
  return planning_microseconds(attention_.device().index, rounds, [this](Stream stream) {
    ForwardCall call = forward_;
    call.stream = stream;
    return attention_.forward(call);
  });
}

Result<void> Case::write_results(const std::filesystem::path& folder) const {
  for (const auto& [name, tensor] : {std::pair<const char*, const Tensor*>{"out", &out_},
                                     {"lse", &lse_},
                                     {"dq", &query_gradient_},
                                     {"dk", &key_gradient_},
                                     {"dv", &value_gradient_}}) {
    if (tensor->buffer.bytes() == 0) continue;
    std::vector<char> content(static_cast<std::size_t>(tensor->buffer.bytes()));
    if (auto copied = tensor->buffer.copy_to_host(content.data(), tensor->buffer.bytes()); !copied) {
      return copied.error();
    }
    std::ofstream stream(folder / name, std::ios::binary);
    if (!stream.write(content.data(), static_cast<std::streamsize>(content.size()))) {
      return file_error(folder / name, "no writable file", "a folder that can be written to");
    }
  }
  return {};
}

}  // namespace flashspan::bench
