// attention.cpp -- Attention, and calls of it that are described once and run with new addresses.
#include "flashspan/attention.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <memory>
#include <optional>
#include <utility>

#include "python/bindings/errors.hpp"
#include "python/bindings/parts.hpp"
#include "python/bindings/tensors.hpp"

namespace flashspan::python {

namespace {

using OptionalTensor = std::optional<TensorTuple>;
using Address = std::uintptr_t;

/// A sink for the log that calls `receiver(level, text)`. Lines come from any thread, the compiler's among them.
LogSink log_of(nanobind::object receiver) {
  // The last owner of the library may let go of the object without the lock on Python.
  const std::shared_ptr<nanobind::object> held(new nanobind::object(std::move(receiver)), [](nanobind::object* object) {
    if (!nanobind::is_alive()) return;
    const nanobind::gil_scoped_acquire locked;
    delete object;
  });
  return [held](LogLevel level, std::string_view text) {
    if (!nanobind::is_alive()) return;
    const nanobind::gil_scoped_acquire locked;
    try {
      (*held)(static_cast<int>(level), nanobind::str(text.data(), text.size()));
    } catch (nanobind::python_error& error) {
      error.discard_as_unraisable("flashspan: the log's receiver");
    }
  };
}

Attention open_attention(int cuda_device, nanobind::object receiver, std::optional<std::string> cache_dir) {
  AttentionOptions options;
  options.log = log_of(std::move(receiver));
  options.cache_dir = std::move(cache_dir);
  const nanobind::gil_scoped_release released;
  return value_of(Attention::open(device_of(cuda_device), options));
}

nanobind::dict dictionary_of(const KernelRecord& record) {
  nanobind::dict fields;
  fields["spec"] = record.spec;
  fields["key"] = record.key;
  fields["outcome"] = record.outcome;
  fields["lowering"] = record.lowering;
  fields["compile_ms"] = record.compile_ms;
  fields["registers"] = record.registers;
  fields["shared_bytes"] = record.shared_bytes;
  fields["spill_bytes"] = record.spill_bytes;
  return fields;
}

/// What a forward and a backward have in common. The addresses of the description are forgotten; run() brings them.
template <typename Call>
class DescribedCall {
 public:
  DescribedCall(Attention attention, std::optional<Mask> mask, std::optional<Score> score)
      : attention_(std::move(attention)), mask_(std::move(mask)), score_(std::move(score)) {}
  DescribedCall(const DescribedCall&) = delete;
  DescribedCall& operator=(const DescribedCall&) = delete;

  [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_bytes_; }

  [[nodiscard]] nanobind::dict prepare() {
    KernelRecord record;
    {
      const nanobind::gil_scoped_release released;
      record = value_of(attention_.prepare(described_));
    }
    return dictionary_of(record);
  }

 protected:
  void describe(Call call) {
    described_ = std::move(call);
    described_.mask = mask_ ? &*mask_ : nullptr;
    described_.score = score_ ? &*score_ : nullptr;
    workspace_bytes_ = value_of(attention_.workspace_bytes(described_));
  }

  [[nodiscard]] Call with_workspace(Address workspace, Address stream) const {
    Call call = described_;
    call.workspace = reinterpret_cast<void*>(workspace);
    call.workspace_bytes = workspace_bytes_;
    call.stream = {reinterpret_cast<void*>(stream)};
    return call;
  }

  Attention attention_;

 private:
  std::optional<Mask> mask_;
  std::optional<Score> score_;
  Call described_;
  std::int64_t workspace_bytes_ = 0;
};

class Forward : public DescribedCall<ForwardCall> {
 public:
  Forward(Attention attention, std::optional<Mask> mask, std::optional<Score> score, std::optional<float> scale,
          const TensorTuple& query, const TensorTuple& key, const TensorTuple& value, const OptionalTensor& sink,
          const TensorTuple& out, const TensorTuple& lse)
      : DescribedCall(std::move(attention), std::move(mask), std::move(score)) {
    ForwardCall call;
    call.query = view_of(query, "query");
    call.key = view_of(key, "key");
    call.value = view_of(value, "value");
    call.sink = view_of(sink, "sink");
    call.out = view_of(out, "out");
    call.lse = view_of(lse, "lse");
    call.scale = scale;
    describe(std::move(call));
  }

  void run(Address query, Address key, Address value, Address sink, Address out, Address lse, Address workspace,
           Address stream) {
    ForwardCall call = with_workspace(workspace, stream);
    call.query.data = address_of(query);
    call.key.data = address_of(key);
    call.value.data = address_of(value);
    if (call.sink.given()) call.sink.data = address_of(sink);
    call.out.data = address_of(out);
    call.lse.data = address_of(lse);
    const nanobind::gil_scoped_release released;
    value_of(attention_.forward(call));
  }
};

class Backward : public DescribedCall<BackwardCall> {
 public:
  Backward(Attention attention, std::optional<Mask> mask, std::optional<Score> score, std::optional<float> scale,
           bool deterministic, const TensorTuple& query, const TensorTuple& key, const TensorTuple& value,
           const OptionalTensor& sink, const TensorTuple& out, const TensorTuple& lse, const TensorTuple& out_gradient,
           const OptionalTensor& lse_gradient, const TensorTuple& query_gradient, const TensorTuple& key_gradient,
           const TensorTuple& value_gradient, const OptionalTensor& sink_gradient)
      : DescribedCall(std::move(attention), std::move(mask), std::move(score)) {
    BackwardCall call;
    call.query = view_of(query, "query");
    call.key = view_of(key, "key");
    call.value = view_of(value, "value");
    call.sink = view_of(sink, "sink");
    call.out = view_of(out, "out");
    call.lse = view_of(lse, "lse");
    call.out_gradient = view_of(out_gradient, "out_gradient");
    call.lse_gradient = view_of(lse_gradient, "lse_gradient");
    call.query_gradient = view_of(query_gradient, "query_gradient");
    call.key_gradient = view_of(key_gradient, "key_gradient");
    call.value_gradient = view_of(value_gradient, "value_gradient");
    call.sink_gradient = view_of(sink_gradient, "sink_gradient");
    call.scale = scale;
    call.deterministic = deterministic;
    describe(std::move(call));
  }

  void run(Address query, Address key, Address value, Address sink, Address out, Address lse, Address out_gradient,
           Address lse_gradient, Address query_gradient, Address key_gradient, Address value_gradient,
           Address sink_gradient, Address workspace, Address stream) {
    BackwardCall call = with_workspace(workspace, stream);
    call.query.data = address_of(query);
    call.key.data = address_of(key);
    call.value.data = address_of(value);
    if (call.sink.given()) call.sink.data = address_of(sink);
    call.out.data = address_of(out);
    call.lse.data = address_of(lse);
    call.out_gradient.data = address_of(out_gradient);
    if (call.lse_gradient.given()) call.lse_gradient.data = address_of(lse_gradient);
    call.query_gradient.data = address_of(query_gradient);
    call.key_gradient.data = address_of(key_gradient);
    call.value_gradient.data = address_of(value_gradient);
    if (call.sink_gradient.given()) call.sink_gradient.data = address_of(sink_gradient);
    const nanobind::gil_scoped_release released;
    value_of(attention_.backward(call));
  }
};

}  // namespace

void bind_attention(nanobind::module_& module) {
  using nanobind::arg;
  nanobind::class_<Attention> attention(module, "Attention");
  attention.def_static("open", &open_attention, arg("cuda_device"), arg("log"), arg("cache_dir").none());

  using OptionalMask = std::optional<Mask>;
  using OptionalScore = std::optional<Score>;
  nanobind::class_<Forward> forward(module, "Forward");
  forward.def(nanobind::init<Attention, OptionalMask, OptionalScore, std::optional<float>, const TensorTuple&,
                             const TensorTuple&, const TensorTuple&, const OptionalTensor&, const TensorTuple&,
                             const TensorTuple&>());
  forward.def_prop_ro("workspace_bytes", &Forward::workspace_bytes);
  forward.def("prepare", &Forward::prepare);
  forward.def("run", &Forward::run);

  nanobind::class_<Backward> backward(module, "Backward");
  backward.def(nanobind::init<Attention, OptionalMask, OptionalScore, std::optional<float>, bool, const TensorTuple&,
                              const TensorTuple&, const TensorTuple&, const OptionalTensor&, const TensorTuple&,
                              const TensorTuple&, const TensorTuple&, const OptionalTensor&, const TensorTuple&,
                              const TensorTuple&, const TensorTuple&, const OptionalTensor&>());
  backward.def_prop_ro("workspace_bytes", &Backward::workspace_bytes);
  backward.def("prepare", &Backward::prepare);
  backward.def("run", &Backward::run);
}

}  // namespace flashspan::python
