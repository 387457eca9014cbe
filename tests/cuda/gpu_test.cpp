// On a real GPU: memory, loading, launching and graph capture, with programs of our own that have the entry points of a
// kernel and write down what arrives. Skipped where there is no GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <numeric>
#include <thread>
#include <vector>

#include "codegen/kernel/emit_cuda.hpp"
#include "codegen/kernel/template_library.hpp"
#include "codegen/kernel/tile_config.hpp"
#include "runtime/cuda/cuda_backend.hpp"
#include "runtime/cuda/cuda_memory.hpp"
#include "tests/cuda/call_fixture.hpp"
#include "tests/cuda/nvrtc_fixture.hpp"

namespace flashspan::cuda {
namespace {

/// Write what the kernel was given as 32-bit words: into the tile counts (the planner) and into `out`.
constexpr const char* planner_witness = R"(
#include "attention/parameters.cuh"
using namespace flashspan_device;

extern "C" __global__ void plan_tiles(AttentionParameters call, ProgramArguments) {
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  call.by_query.counts[0] = blockDim.x;
  call.by_query.counts[1] = gridDim.x;
}
)";
constexpr const char* attention_witness = R"(
#include "attention/parameters.cuh"
using namespace flashspan_device;

extern "C" __global__ void attention_forward(AttentionParameters call, ProgramArguments mask, ProgramArguments score) {
  extern __shared__ int shared[];
  int shared_bytes;
  asm("mov.u32 %0, %dynamic_smem_size;" : "=r"(shared_bytes));
  const int last = shared_bytes / 4 - 1;
  if (threadIdx.x == 0) shared[last] = 4711;
  __syncthreads();
  if (blockIdx.x != gridDim.x - 1 || threadIdx.x != blockDim.x - 1) return;
  if (call.scale < 0) {  // take long: for tests of what happens meanwhile
    const long long start = clock64();
    while (clock64() - start < 200000000) {
    }
  }
  int* word = static_cast<int*>(call.out.data);
  const auto put = [&word](int value) { *word++ = value; };
  put(shared[last]);
  put(shared_bytes);
  put(gridDim.x);
  put(blockDim.x);
  put(call.batch);
  put(call.query_heads);
  put(call.kv_heads);
  put(call.q_len);
  put(call.kv_len);
  put(__float_as_int(call.scale));
  put(call.query.stride_row);
  put(call.out.stride_head);
  put(call.by_query.counts[0]);
  put(call.by_query.counts[1]);
  put(call.by_query.plan_batch);
  put(mask.tensors[0].extent[1]);
  put(static_cast<const int*>(mask.tensors[0].data)[1]);
  put(static_cast<int>(mask.integers[0]));
  put(__float_as_int(score.reals[1]));
  put(call.lse.data == nullptr);
}
)";

kernel::SourceText witness() {
  kernel::SourceText source;
  for (const kernel::TemplateFile& file : kernel::template_library()) {
    if (file.name == "attention/parameters.cuh") {
      source.files.push_back({std::string(file.name), std::string(file.text)});
    }
  }
  source.programs = {
      {"", attention_witness, {kernel::entry_forward}},
      {"planner", planner_witness, {kernel::entry_plan_tiles}},
  };
  return source;
}

TEST_F(WithNvrtc, TheWitnessOfTheGpuTestsCompiles) {
  const auto binary = compiler().compile(witness(), {80, 0});
  ASSERT_TRUE(binary) << binary.error().message();
  EXPECT_EQ(binary->report.log, "");
}

class WithGpu : public WithNvrtc {
 protected:
  void SetUp() override {
    const auto driver = system_driver();
    if (!driver) GTEST_SKIP() << "no GPU: " << driver.error().argument << ": " << driver.error().got;
    const auto devices = cuda_devices(**driver);
    if (!devices || devices->empty()) GTEST_SKIP() << "no GPU of compute capability 8.0 or later";
    WithNvrtc::SetUp();
    if (IsSkipped()) return;
    auto opened = CudaDevice::open(**driver, devices->front().index);
    ASSERT_TRUE(opened) << opened.error().message();
    device_ = *opened;
  }

  [[nodiscard]] std::shared_ptr<void> memory(std::int64_t bytes) const {
    auto allocated = allocate(device_, bytes);
    EXPECT_TRUE(allocated) << allocated.error().message();
    return allocated ? *allocated : nullptr;
  }

  CudaDevice device_;
};

TEST_F(WithGpu, FactsArePlausible) {
  const auto facts = device_.facts();
  ASSERT_TRUE(facts) << facts.error().message();
  EXPECT_FALSE(facts->name.empty());
  EXPECT_GT(facts->processors, 0);
  EXPECT_GT(facts->memory_bytes, std::int64_t{1} << 30);
  EXPECT_GE(facts->target.arch.number, 80);
}

TEST_F(WithGpu, MemoryKeepsWhatIsCopiedIn) {
  std::vector<int> in(100000);
  std::iota(in.begin(), in.end(), 7);
  const auto bytes = static_cast<std::int64_t>(in.size() * sizeof(int));
  const auto held = memory(bytes);
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(held.get()) % 256, 0u);
  ASSERT_TRUE(copy_from_host(device_, held.get(), in.data(), bytes));
  std::vector<int> out(in.size());
  ASSERT_TRUE(copy_to_host(device_, out.data(), held.get(), bytes));
  EXPECT_EQ(out, in);
  EXPECT_TRUE(synchronize(device_, {}));
}

TEST_F(WithGpu, TooMuchMemoryIsANamedError) {
  const auto allocated = allocate(device_, std::int64_t{1} << 50);
  ASSERT_FALSE(allocated);
  EXPECT_EQ(allocated.error().code, ErrorCode::device_error);
  EXPECT_EQ(allocated.error().argument, "cuMemAlloc");
}

TEST_F(WithGpu, ACubinOfAnotherArchitectureIsRefusedAtLoad) {
  const auto facts = device_.facts();
  ASSERT_TRUE(facts);
  const Arch other = facts->target.arch.number == 80 ? Arch{90, 0} : Arch{80, 0};
  const auto binary = compiler().compile(witness(), other);
  ASSERT_TRUE(binary) << binary.error().message();
  auto backend = make_cuda_backend(device_, machine_search());
  ASSERT_TRUE(backend);
  const SmallCall call(Direction::forward);
  const auto loaded = (*backend)->load(binary->bytes(), call.spec);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::unsupported);
  EXPECT_EQ(loaded.error().argument.substr(0, 2), "cu");
}

/// The witness module, loaded; a call whose tensors are on the device.
class WithWitness : public WithGpu {
 protected:
  static constexpr std::int64_t words = 32;

  void SetUp() override {
    WithGpu::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto backend = make_cuda_backend(device_, machine_search());
    ASSERT_TRUE(backend) << backend.error().message();
    backend_ = *std::move(backend);
    call_.spec.target = backend_->facts().target;
    const auto binary = backend_->compile(witness(), call_.spec);
    ASSERT_TRUE(binary) << binary.error().message();
    auto loaded = backend_->load(binary->bytes(), call_.spec);
    ASSERT_TRUE(loaded) << loaded.error().message();
    kernel_ = *loaded;

    out_ = memory(words * 4);
    documents_ = memory(1600);
    const std::array<int, 2> document_values{3, 99};
    ASSERT_TRUE(copy_from_host(device_, documents_.get(), document_values.data(), 8));
    call_.args.out.data = out_.get();
    call_.args.lse = TensorView{};
    call_.args.scale = 0.375F;
    call_.bindings.tensors[0] = TensorView::contiguous(documents_.get(), DType::i32, {2, 200});
    call_.bindings.scalars[0].integer = -12345678901;
    score_bindings_.scalars = {{0, 0}, {0, 2.5F}};
    call_.args.score_program = &score_;
    call_.args.score_bindings = &score_bindings_;
    call_.args.stream = {};
    call_.args.workspace_bytes = backend_->workspace_bytes(call_.spec, call_.args);
    workspace_ = memory(call_.args.workspace_bytes);
    call_.args.workspace = workspace_.get();
  }

  [[nodiscard]] Result<void> run() { return backend_->run(*kernel_, call_.spec, call_.args); }

  void clear() {
    const std::array<int, words> zeros{};
    ASSERT_TRUE(copy_from_host(device_, out_.get(), zeros.data(), words * 4));
  }

  void expect_arrived() {
    ASSERT_TRUE(synchronize(device_, call_.args.stream));
    std::array<int, words> got{};
    ASSERT_TRUE(copy_to_host(device_, got.data(), out_.get(), words * 4));
    const auto bits = [](float value) { return std::bit_cast<int>(value); };
    const int shared = static_cast<int>(kernel::shared_memory_bytes(call_.spec));
    const std::array<int, words> expected{4711,       shared,
                                          24,         128,
                                          2,          6,
                                          3,          100,
                                          200,        bits(call_.args.scale),
                                          64,         100 * 32,
                                          256,        8,
                                          2,          200,
                                          99,         static_cast<int>(-12345678901),
                                          bits(2.5F), 1};
    EXPECT_EQ(got, expected);
  }

  static mask::Program document_program_with_scalar() {
    mask::Program program({{"left", mask::ValueType::integer}}, {{"doc", DType::i32, 2}});
    mask::Node lookup;
    lookup.op = mask::Op::lookup;
    lookup.operands = {program.variable(mask::Variable::b), program.variable(mask::Variable::k)};
    const mask::NodeId document = program.add(lookup);
    program.set_root(program.binary(mask::Op::equal, document, program.variable(mask::Variable::q)));
    return program;
  }

  SmallCall call_{Direction::forward, document_program_with_scalar()};
  mask::Program score_{{{"first", mask::ValueType::real}, {"slope", mask::ValueType::real}}, {}};
  mask::Bindings score_bindings_;
  std::unique_ptr<backend::Backend> backend_;
  std::shared_ptr<backend::LoadedKernel> kernel_;
  std::shared_ptr<void> out_, documents_, workspace_;
};

TEST_F(WithWitness, KernelsReceiveWhatTheHostSent) {
  clear();
  const auto done = run();
  ASSERT_TRUE(done) << done.error().message();
  expect_arrived();
}

TEST_F(WithWitness, LaunchesWorkFromAThreadWithoutAContext) {
  clear();
  Result<void> done;
  std::thread([&] { done = run(); }).join();
  ASSERT_TRUE(done) << done.error().message();
  expect_arrived();
}

/// Driver functions that only tests need.
template <typename Function>
Function driver_function(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

TEST_F(WithWitness, ARunCanBeCapturedAndReplayed) {
  using CUgraph = void*;
  const auto create = driver_function<CUresult (*)(CUstream*, unsigned)>("cuStreamCreate");
  const auto destroy = driver_function<CUresult (*)(CUstream)>("cuStreamDestroy_v2");
  const auto begin = driver_function<CUresult (*)(CUstream, int)>("cuStreamBeginCapture_v2");
  const auto end = driver_function<CUresult (*)(CUstream, CUgraph*)>("cuStreamEndCapture");
  const auto instantiate =
      driver_function<CUresult (*)(CUgraph*, CUgraph, unsigned long long)>("cuGraphInstantiateWithFlags");
  const auto replay = driver_function<CUresult (*)(CUgraph, CUstream)>("cuGraphLaunch");
  ASSERT_TRUE(create && destroy && begin && end && instantiate && replay);

  const ContextScope scope(device_);
  ASSERT_TRUE(scope.entered());
  CUstream stream = nullptr;
  ASSERT_EQ(create(&stream, 1), cuda_success);  // CU_STREAM_NON_BLOCKING
  call_.args.stream.handle = stream;
  clear();
  ASSERT_EQ(begin(stream, 0), cuda_success);  // CU_STREAM_CAPTURE_MODE_GLOBAL: forbids allocation and waiting
  const auto done = run();
  CUgraph graph = nullptr;
  ASSERT_EQ(end(stream, &graph), cuda_success);
  ASSERT_TRUE(done) << done.error().message();

  std::array<int, words> got{};
  ASSERT_TRUE(copy_to_host(device_, got.data(), out_.get(), words * 4));
  EXPECT_EQ(got, (std::array<int, words>{})) << "captured, not run";
  CUgraph executable = nullptr;
  ASSERT_EQ(instantiate(&executable, graph, 0), cuda_success);
  for (int round = 0; round < 3; ++round) {
    clear();
    ASSERT_EQ(replay(executable, stream), cuda_success);
    expect_arrived();
  }
  EXPECT_EQ(destroy(stream), cuda_success);
}

TEST_F(WithWitness, AFollowedKernelMayBeUnloadedWhenItsLaunchHasEndedAndNotBefore) {
  const auto create = driver_function<CUresult (*)(CUstream*, unsigned)>("cuStreamCreate");
  const auto destroy = driver_function<CUresult (*)(CUstream)>("cuStreamDestroy_v2");
  const auto fill = driver_function<CUresult (*)(CUdeviceptr, unsigned char, std::size_t, CUstream)>("cuMemsetD8Async");
  const auto finish = driver_function<CUresult (*)()>("cuCtxSynchronize");
  ASSERT_TRUE(create && destroy && fill && finish);
  constexpr std::size_t much = std::size_t{1} << 30;
  const auto ballast = memory(much);
  EXPECT_FALSE(kernel_->may_unload()) << "not followed";
  kernel_->follow_launches();
  EXPECT_TRUE(kernel_->may_unload());
  const ContextScope scope(device_);
  CUstream stream = nullptr;
  ASSERT_EQ(create(&stream, 1), cuda_success);
  call_.args.stream.handle = stream;
  clear();
  // Behind some milliseconds of other work.
  for (int i = 0; i < 50; ++i)
    ASSERT_EQ(fill(reinterpret_cast<CUdeviceptr>(ballast.get()), 1, much, stream), cuda_success);
  ASSERT_TRUE(run());
  EXPECT_FALSE(kernel_->may_unload());
  expect_arrived();
  EXPECT_TRUE(kernel_->may_unload());
  ASSERT_TRUE(run());
  ASSERT_EQ(destroy(stream), cuda_success);  // the launch may still be pending, and the handle is gone
  ASSERT_EQ(finish(), cuda_success);
  EXPECT_TRUE(kernel_->may_unload());
}

TEST_F(WithWitness, AFollowedKernelThatAGraphCapturedIsKeptForGood) {
  using CUgraph = void*;
  const auto create = driver_function<CUresult (*)(CUstream*, unsigned)>("cuStreamCreate");
  const auto begin = driver_function<CUresult (*)(CUstream, int)>("cuStreamBeginCapture_v2");
  const auto end = driver_function<CUresult (*)(CUstream, CUgraph*)>("cuStreamEndCapture");
  ASSERT_TRUE(create && begin && end);
  kernel_->follow_launches();
  const ContextScope scope(device_);
  CUstream stream = nullptr;
  ASSERT_EQ(create(&stream, 1), cuda_success);
  call_.args.stream.handle = stream;
  EXPECT_FALSE(backend_->is_capturing(call_.args.stream));
  ASSERT_EQ(begin(stream, 0), cuda_success);
  EXPECT_TRUE(backend_->is_capturing(call_.args.stream));
  ASSERT_TRUE(run());
  EXPECT_FALSE(kernel_->may_unload());
  CUgraph graph = nullptr;
  ASSERT_EQ(end(stream, &graph), cuda_success);
  ASSERT_TRUE(synchronize(device_, {}));
  EXPECT_FALSE(kernel_->may_unload());
}

TEST_F(WithWitness, UnloadingRightAfterALaunchLetsItFinish) {
  clear();
  call_.args.scale = -1;
  ASSERT_TRUE(run());
  kernel_.reset();
  expect_arrived();
}

TEST_F(WithWitness, UnloadingWhileAnotherStreamIsCapturedLeavesTheCaptureIntact) {
  using CUgraph = void*;
  const auto create = driver_function<CUresult (*)(CUstream*, unsigned)>("cuStreamCreate");
  const auto begin = driver_function<CUresult (*)(CUstream, int)>("cuStreamBeginCapture_v2");
  const auto end = driver_function<CUresult (*)(CUstream, CUgraph*)>("cuStreamEndCapture");
  ASSERT_TRUE(create && begin && end);
  const auto binary = backend_->compile(witness(), call_.spec);
  ASSERT_TRUE(binary);
  auto other = backend_->load(binary->bytes(), call_.spec);
  ASSERT_TRUE(other) << other.error().message();

  const ContextScope scope(device_);
  CUstream stream = nullptr;
  ASSERT_EQ(create(&stream, 1), cuda_success);
  call_.args.stream.handle = stream;
  ASSERT_EQ(begin(stream, 0), cuda_success);
  ASSERT_TRUE(run());
  *other = nullptr;  // the last owner: unloads
  CUgraph graph = nullptr;
  EXPECT_EQ(end(stream, &graph), cuda_success);
}

}  // namespace
}  // namespace flashspan::cuda
