// A request reads back as it was written, and nothing else passes for one.
#include "runtime/service/service_request.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/service/service_fixture.hpp"

namespace flashspan::testing {
namespace {

using ::testing::HasSubstr;

nlohmann::json good_request() {
  return nlohmann::json::parse(to_text(service::CompileRequest{FakeService().wanted(1), 12.5}));
}

TEST(ServiceRequests, ReadBackAsTheyWereWritten) {
  const attention::RemoteRequest wanted = FakeService().wanted(1);
  const auto read = service::compile_request_from_text(to_text(service::CompileRequest{wanted, 12.5}));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->wanted.spec, wanted.spec);
  EXPECT_EQ(read->wanted.key, wanted.key);
  EXPECT_EQ(*read->wanted.text.view().mask, expression());
  EXPECT_EQ(read->wanted.text.view().score, nullptr);
  EXPECT_EQ(read->time_out_seconds, 12.5);
  const auto several = service::prefetch_from_text(service::to_text({wanted, FakeService().wanted(2)}));
  ASSERT_TRUE(several.has_value());
  ASSERT_EQ(several->size(), 2U);
  EXPECT_EQ((*several)[1]->spec, spec_of(2));
}

TEST(ServiceRequests, MayNameTheirKernelByItsAlias) {
  attention::RemoteRequest wanted = FakeService().wanted(1);
  wanted.by_alias = true;
  const auto read = service::compile_request_from_text(to_text(service::CompileRequest{wanted, 1}));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_TRUE(read->wanted.by_alias);
  EXPECT_EQ(read->wanted.key, wanted.key);
}

TEST(ServiceRequests, AUsersBytesThatAreNotUtf8DoNotSpoilThem) {
  attention::RemoteRequest wanted = FakeService().wanted(1);
  wanted.text = attention::OwnedText("\xff\xfe", "\x80");
  const auto read = service::compile_request_from_text(to_text(service::CompileRequest{wanted, 1}));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->wanted.key, wanted.key);
}

TEST(ServiceRequests, OfAnotherFormAreRefusedAndTheFieldNamed) {
  const auto with = [](const char* field, nlohmann::json value) {
    nlohmann::json request = good_request();
    request[field] = std::move(value);
    return request.dump();
  };
  const auto without = [](const char* field) {
    nlohmann::json request = good_request();
    request.erase(field);
    return request.dump();
  };
  const std::string spec = spec_of(1).to_text();
  const std::vector<std::pair<std::string, std::string>> faults{
      {"JSON object", ""},
      {"JSON object", "[1]"},
      {"JSON object", good_request().dump().substr(1)},
      {"'spec'", without("spec")},
      {"'spec'", with("spec", 7)},
      {"spec field", with("spec", "source = __global__ void f() {}")},
      {"'source'", with("spec", spec + "source = __global__ void f() {}\n")},
      {"tile: got 999x",
       with("spec", spec.substr(0, spec.find("block_m")) + "block_m = 999\n" + spec.substr(spec.find("block_n")))},
      {"'spec'", with("spec", spec + std::string(1 << 18, '#'))},
      {"'key'", without("key")},
      {"'key'", with("key", "0123")},
      {"'expression'", without("expression")},
      {"'score'", with("score", 1)},
      {"'time_out_seconds'", without("time_out_seconds")},
      {"'time_out_seconds'", with("time_out_seconds", 0)},
      {"'time_out_seconds'", with("time_out_seconds", -1)},
      {"'time_out_seconds'", with("time_out_seconds", 1e9)},
      {"'time_out_seconds'", with("time_out_seconds", "soon")},
  };
  for (const auto& [name, text] : faults) {
    const auto refused = service::compile_request_from_text(text);
    ASSERT_FALSE(refused.has_value()) << name << "\n" << text;
    EXPECT_THAT(refused.error().message(), HasSubstr(name));
  }
}

TEST(ServiceRequests, NestedWithoutEndAreRefusedAndTakeNoStack) {
  constexpr std::size_t depth = 1'000'000;
  const std::string nest = std::string(depth, '[') + std::string(depth, ']');
  EXPECT_FALSE(service::compile_request_from_text(std::string(depth, '[')).has_value());
  EXPECT_FALSE(service::compile_request_from_text(nest).has_value());
  EXPECT_FALSE(service::compile_request_from_text("{\"spec\":" + nest + "}").has_value());
  std::string request = good_request().dump();
  request.replace(request.find("12.5"), 4, nest);
  EXPECT_FALSE(service::compile_request_from_text(request).has_value());
  const auto kernels = service::prefetch_from_text("{\"kernels\":[" + nest + "]}");
  ASSERT_TRUE(kernels.has_value());
  EXPECT_FALSE(kernels->front().has_value());
}

TEST(ServiceRequests, AKernelAtFaultIsAnErrorInItsPlaceAmongThosePrefetched) {
  nlohmann::json kernels = nlohmann::json::array({good_request(), 7, {{"spec", "nothing"}}});
  const auto read = service::prefetch_from_text(nlohmann::json{{"kernels", kernels}}.dump());
  ASSERT_TRUE(read.has_value()) << read.error().message();
  ASSERT_EQ(read->size(), 3U);
  EXPECT_TRUE((*read)[0].has_value());
  EXPECT_FALSE((*read)[1].has_value());
  EXPECT_FALSE((*read)[2].has_value());
  const std::vector<int> many(service::most_prefetched + 1);
  for (const auto& bad :
       {nlohmann::json{{"kernels", many}}, nlohmann::json{{"kernels", 1}}, nlohmann::json::object()}) {
    EXPECT_FALSE(service::prefetch_from_text(bad.dump()).has_value());
  }
}

}  // namespace
}  // namespace flashspan::testing
