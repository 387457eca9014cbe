// plan_timer.cpp -- see plan_timer.hpp.
#include "plan_timer.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace flashspan::bench {
namespace {

// Opaque handles of the driver.
using Context = void*;
using DriverStream = void*;
using Graph = void*;
using Node = void*;
using ExecutableGraph = void*;

constexpr int plans_per_graph = 50;  // so that starting a graph does not count
constexpr unsigned stream_non_blocking = 1;
constexpr int capture_mode_thread_local = 1;

/// A function of libcuda, by its exported name.
template <typename... Arguments>
class DriverFunction {
 public:
  explicit DriverFunction(const char* name) : name_(name) {
    static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    function_ = library == nullptr ? nullptr : reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  }
  Result<void> operator()(Arguments... arguments) const {
    const int code = function_ == nullptr ? -1 : function_(arguments...);
    if (code == 0) return {};
    return Error{ErrorCode::device_error, name_, std::to_string(code), "CUDA_SUCCESS", ""};
  }

 private:
  const char* name_;
  int (*function_)(Arguments...) = nullptr;
};

struct Driver {
  DriverFunction<Context*, int> retain{"cuDevicePrimaryCtxRetain"};
  DriverFunction<Context> set_current{"cuCtxSetCurrent"};
  DriverFunction<DriverStream*, unsigned> create_stream{"cuStreamCreate"};
  DriverFunction<DriverStream> synchronize{"cuStreamSynchronize"};
  DriverFunction<DriverStream, int> begin_capture{"cuStreamBeginCapture_v2"};
  DriverFunction<DriverStream, Graph*> end_capture{"cuStreamEndCapture"};
  DriverFunction<Graph, Node*, std::size_t*> nodes{"cuGraphGetNodes"};
  DriverFunction<Node, Node*, std::size_t*> dependents{"cuGraphNodeGetDependentNodes"};
  DriverFunction<Node> destroy_node{"cuGraphDestroyNode"};
  DriverFunction<Graph*, unsigned> create_graph{"cuGraphCreate"};
  DriverFunction<Node*, Graph, const Node*, std::size_t, Graph> add_child{"cuGraphAddChildGraphNode"};
  DriverFunction<ExecutableGraph*, Graph, unsigned long long> instantiate{"cuGraphInstantiateWithFlags"};
  DriverFunction<ExecutableGraph, DriverStream> launch{"cuGraphLaunch"};
};

/// Takes the node that no other depends on out of the graph; true if others are left.
Result<bool> drop_last_node(const Driver& driver, Graph graph) {
  std::size_t count = 0;
  if (auto done = driver.nodes(graph, nullptr, &count); !done) return done.error();
  std::vector<Node> nodes(count);
  if (auto done = driver.nodes(graph, nodes.data(), &count); !done) return done.error();
  for (Node node : nodes) {
    std::size_t dependents = 0;
    if (auto done = driver.dependents(node, nullptr, &dependents); !done) return done.error();
    if (dependents > 0) continue;
    if (auto done = driver.destroy_node(node); !done) return done.error();
    return count > 1;
  }
  return false;
}

/// `graph` many times, one after another.
Result<ExecutableGraph> repeated(const Driver& driver, Graph graph) {
  Graph all = nullptr;
  if (auto done = driver.create_graph(&all, 0); !done) return done.error();
  Node last = nullptr;
  for (int i = 0; i < plans_per_graph; ++i) {
    Node next = nullptr;
    if (auto done = driver.add_child(&next, all, &last, i == 0 ? 0 : 1, graph); !done) return done.error();
    last = next;
  }
  ExecutableGraph executable = nullptr;
  if (auto done = driver.instantiate(&executable, all, 0); !done) return done.error();
  return executable;
}

}  // namespace

Result<double> planning_microseconds(int ordinal, int rounds, const std::function<Result<void>(Stream)>& launch) {
  const Driver driver;
  Context context = nullptr;
  DriverStream stream = nullptr;
  Graph graph = nullptr;
  if (auto done = driver.retain(&context, ordinal); !done) return done.error();
  if (auto done = driver.set_current(context); !done) return done.error();
  if (auto done = driver.create_stream(&stream, stream_non_blocking); !done) return done.error();
  if (auto done = driver.begin_capture(stream, capture_mode_thread_local); !done) return done.error();
  if (auto done = launch(Stream{stream}); !done) return done.error();
  if (auto done = driver.end_capture(stream, &graph); !done) return done.error();
  const auto plans = drop_last_node(driver, graph);
  if (!plans) return plans.error();
  if (!*plans) return 0.0;
  const auto executable = repeated(driver, graph);
  if (!executable) return executable.error();
  std::vector<double> microseconds;
  for (int round = 0; round <= rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    if (auto done = driver.launch(*executable, stream); !done) return done.error();
    if (auto done = driver.synchronize(stream); !done) return done.error();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (round > 0) microseconds.push_back(took.count() / plans_per_graph);  // the first one warms up
  }
  std::nth_element(microseconds.begin(), microseconds.begin() + rounds / 2, microseconds.end());
  return microseconds[static_cast<std::size_t>(rounds / 2)];
}

}  // namespace flashspan::bench
