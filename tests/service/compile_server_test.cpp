// What a server answers.
#include "runtime/service/compile_server.hpp"

#include <gmock/gmock.h>

#include <latch>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/service/service_fixture.hpp"

namespace flashspan::testing {
namespace {

using ::testing::HasSubstr;

std::optional<cache::Entry> entry_in(const network::HttpAnswer& answer, const cache::KernelKey& key,
                                     const cache::Signer& signer = {}) {
  std::string why;
  auto entry = decode_signed(key, std::as_bytes(std::span(answer.body)), signer, &why);
  EXPECT_TRUE(entry.has_value()) << why;
  return entry;
}

TEST(CompileServer, CompilesASpecOnceAndAnswersWithItsEntry) {
  FakeService service;
  const auto wanted = service.wanted(1);
  for (int i = 0; i < 3; ++i) {
    const auto answer = service.compile(wanted);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const auto entry = entry_in(answer, wanted.key);
    ASSERT_TRUE(entry.has_value());
    const std::string text(reinterpret_cast<const char*>(entry->artifact.data()), entry->artifact.size());
    EXPECT_EQ(text, wanted.spec.summary()) << "what the back end compiled";
  }
  EXPECT_EQ(service.backend->compiles, 1);
}

TEST(CompileServer, CompilesTheTilesThatTuningFindsAndCallsAskFor) {
  FakeService service;
  attention::RemoteRequest wanted = service.wanted(1);
  ASSERT_NE(wanted.spec.tile, (TileConfig{64, 32, 4, 1}));
  wanted.spec.tile = {64, 32, 4, 1};
  attention::KernelProvider provider(service.backend, service.parts.cache, {{}, [](LogLevel, std::string_view) {}});
  wanted.key = provider.names_of(wanted.spec)->key;
  const auto answer = service.compile(wanted);
  EXPECT_EQ(answer.status, 200) << answer.body;
}

TEST(CompileServer, ClientsThatAskAtOneTimeShareOneCompile) {
  FakeService service;
  service.threads = 4;
  service.backend->compile_time = std::chrono::milliseconds(30);
  const auto wanted = service.wanted(1);
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 16; ++i) clients.emplace_back([&] { EXPECT_EQ(service.compile(wanted).status, 200); });
  }
  EXPECT_EQ(service.backend->compiles, 1);
}

TEST(CompileServer, AKernelThatDoesNotFitItsRegistersIsAnAnswer) {
  FakeService service;
  service.backend->spilling = kernel::KernelFamily::hopper;
  attention::SpecChoice choice;
  choice.target = {DeviceKind::cuda, {90, 'a'}};
  choice.dtype = DType::bf16;
  choice.head_dim_qk = choice.head_dim_v = 64;
  attention::RemoteRequest wanted = service.wanted(1);
  wanted.spec = *attention::choose_spec(choice, Mask::causal().state(), nullptr);
  attention::KernelProvider provider(service.backend, service.parts.cache, {{}, [](LogLevel, std::string_view) {}});
  wanted.key = provider.names_of(wanted.spec)->key;
  const auto answer = service.compile(wanted);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const auto metadata = attention::metadata_from_text(entry_in(answer, wanted.key)->metadata);
  ASSERT_TRUE(metadata.has_value());
  EXPECT_EQ(metadata->does_not_fit, "8 bytes of spills");
}

TEST(CompileServer, SignsItsAnswersIfItHasASecret) {
  FakeService service;
  service.parts.signer = [](std::span<const std::byte> bytes) {
    return cache::AuthenticationCode{static_cast<std::byte>(bytes.size() & 0xff), std::byte{42}};
  };
  const auto wanted = service.wanted(1);
  EXPECT_TRUE(entry_in(service.compile(wanted), wanted.key, service.parts.signer).has_value());
}

TEST(CompileServer, RefusesWhatItCannotServeWithALineThatSaysWhy) {
  FakeService service;
  auto& server = service.server();
  EXPECT_EQ(server.answer({"GET", "/v1/other", ""}).status, 404);
  EXPECT_EQ(server.answer({"GET", service::compile_path, ""}).status, 405);
  EXPECT_EQ(server.answer({"POST", service::status_path, ""}).status, 405);
  EXPECT_EQ(server.answer({"POST", service::compile_path, "no JSON"}).status, 400);
  attention::RemoteRequest other_version = service.wanted(1);
  other_version.key.bytes[0] ^= 1;
  const auto conflict = service.compile(other_version);
  EXPECT_EQ(conflict.status, 409);
  EXPECT_THAT(conflict.body, HasSubstr(service.wanted(1).key.to_text()));
  attention::SpecChoice cpu;
  cpu.dtype = DType::f32;
  cpu.head_dim_qk = cpu.head_dim_v = 64;
  attention::RemoteRequest for_cpu = service.wanted(1);
  for_cpu.spec = *attention::choose_spec(cpu, Mask::causal().state(), nullptr);
  EXPECT_EQ(service.compile(for_cpu).status, 409);
  EXPECT_EQ(service.backend->compiles, 0);
}

TEST(CompileServer, ACompileThatFailsIsToldWithTheUsersExpressionAndNotRemembered) {
  FakeService service;
  service.backend->compile_failures = 1;
  const auto wanted = service.wanted(1);
  const auto failed = service.compile(wanted);
  EXPECT_EQ(failed.status, 422);
  EXPECT_THAT(failed.body, HasSubstr(expression()));
  EXPECT_THAT(failed.body, HasSubstr("line 7: no such thing"));
  EXPECT_EQ(service.compile(wanted).status, 200);
  service.backend->throws = true;
  EXPECT_EQ(service.compile(service.wanted(2)).status, 422);
}

TEST(CompileServer, ARequestWhoseTimeIsUpIsAnsweredAndItsCompileIsKept) {
  std::latch released(1);  // outlives the service, whose threads wait at it
  FakeService service;
  service.backend->on_compile = [&] { released.wait(); };
  const auto wanted = service.wanted(1);
  EXPECT_EQ(service.compile(wanted, 0.01).status, 504);
  released.count_down();
  EXPECT_EQ(service.compile(wanted).status, 200);
  EXPECT_EQ(service.backend->compiles, 1);
}

TEST(CompileServer, StoppingAnswersThoseWhoWait) {
  std::latch started(1), released(1);  // outlive the service, whose threads wait at them
  FakeService service;
  service.backend->on_compile = [&] { started.count_down(), released.wait(); };
  std::jthread client([&] { EXPECT_EQ(service.compile(service.wanted(1)).status, 503); });
  started.wait();
  service.server().stop();
  client.join();
  released.count_down();
}

TEST(CompileServer, PrefetchesWithoutWaiting) {
  FakeService service;
  const std::string body = service::to_text({service.wanted(1), service.wanted(2)});
  const auto answer = service.server().answer({"POST", service::prefetch_path, body});
  EXPECT_EQ(answer.status, 202);
  EXPECT_EQ(answer.body, "2 of 2 taken\n");
  EXPECT_EQ(service.compile(service.wanted(1)).status, 200);
  EXPECT_EQ(service.compile(service.wanted(2)).status, 200);
  EXPECT_EQ(service.backend->compiles, 2);
  EXPECT_EQ(service.server().answer({"POST", service::prefetch_path, "{}"}).status, 400);
}

TEST(CompileServer, ShowsItsStateAndItsMetrics) {
  std::latch started(1), released(1);  // outlive the service, whose threads wait at them
  FakeService service;
  service.backend->on_compile = [&] { started.count_down(), released.wait(); };
  std::jthread client([&] { service.compile(service.wanted(1)); });
  started.wait();
  const auto status = nlohmann::json::parse(service.server().answer({"GET", service::status_path, ""}).body);
  ASSERT_EQ(status["running"].size(), 1U);
  EXPECT_EQ(status["running"][0]["spec"], spec_of(1).summary());
  EXPECT_EQ(status["running"][0]["clients"], 1);
  EXPECT_EQ(status["queued"], 0);
  released.count_down();
  client.join();
  const auto metrics = service.server().answer({"GET", service::metrics_path, ""});
  EXPECT_EQ(metrics.type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(metrics.body, HasSubstr("flashspan_compiles_total{result=\"ok\"} 1\n"));
}

}  // namespace
}  // namespace flashspan::testing
