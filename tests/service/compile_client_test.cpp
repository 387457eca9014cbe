// What a client makes of a service that answers, refuses, lies or is not there; and how a provider uses it.
#include "runtime/service/compile_client.hpp"

#include <gmock/gmock.h>

#include <functional>

#include "tests/runtime/private_folder.hpp"
#include "tests/service/service_fixture.hpp"

namespace flashspan::testing {
namespace {

using ::testing::HasSubstr;

using Reply = std::function<Result<network::HttpAnswer>(const network::HttpRequest&)>;

class FakeHttp final : public network::HttpClient {
 public:
  FakeHttp(Reply& reply, int& calls) : reply_(reply), calls_(calls) {}
  [[nodiscard]] const std::string& address() const override { return address_; }
  [[nodiscard]] Result<network::HttpAnswer> send(const network::HttpRequest& request, double /*seconds*/) override {
    ++calls_;
    return reply_(request);
  }

 private:
  Reply& reply_;
  int& calls_;
  std::string address_ = "unix:/fake";
};

class Client : public ::testing::Test {
 protected:
  std::shared_ptr<service::CompileClient> client(std::chrono::milliseconds pause = std::chrono::hours(1)) {
    service::ClientOptions options;
    options.log = log_;
    options.pause_after_failure = pause;
    return std::make_shared<service::CompileClient>(std::make_unique<FakeHttp>(reply_, calls_), options);
  }
  static Reply status(int code, const std::string& body = "the reason\n") {
    return [=](const network::HttpRequest&) { return network::HttpAnswer{code, "text/plain", body}; };
  }
  static Result<network::HttpAnswer> absent(const network::HttpRequest& /*request*/) {
    return Error{ErrorCode::io_error, "unix:/fake", "Connection refused", "a server that answers", ""};
  }

  FakeService service_;
  Reply reply_ = [this](const network::HttpRequest& request) { return service_.server().answer(request); };
  int calls_ = 0;
  std::vector<std::string> lines_;
  LogSink log_ = [this](LogLevel level, std::string_view line) {
    if (level >= LogLevel::warning) lines_.emplace_back(line);
  };
};

TEST_F(Client, GetsWhatTheServiceCompiles) {
  const auto wanted = service_.wanted(1);
  const auto entry = client()->fetch(wanted);
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->artifact.size(), wanted.spec.summary().size());
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Client, AServiceThatIsAbsentIsOneLineAndLeftAlone) {
  reply_ = absent;
  const auto asking = client();
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(asking->fetch(service_.wanted(i)).has_value());
    asking->prefetch({service_.wanted(i)});
  }
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_THAT(lines_.front(), HasSubstr("unix:/fake does not serve, compiling here"));
  EXPECT_THAT(lines_.front(), HasSubstr("Connection refused"));
  EXPECT_EQ(calls_, 1);
}

TEST_F(Client, AServiceThatComesBackIsAskedAgain) {
  const Reply present = reply_;
  reply_ = absent;
  const auto asking = client(std::chrono::milliseconds(0));
  EXPECT_FALSE(asking->fetch(service_.wanted(1)).has_value());
  EXPECT_FALSE(asking->fetch(service_.wanted(1)).has_value());
  EXPECT_EQ(lines_.size(), 1U);
  reply_ = present;
  EXPECT_TRUE(asking->fetch(service_.wanted(1)).has_value());
  reply_ = absent;
  EXPECT_FALSE(asking->fetch(service_.wanted(2)).has_value());
  EXPECT_EQ(lines_.size(), 2U) << "another outage";
}

TEST_F(Client, WhatIsNoEntryOfTheKeyIsRefused) {
  const auto one = service_.wanted(1), two = service_.wanted(2);
  const auto answer = service_.compile(two);
  for (const std::string& body : {answer.body, answer.body.substr(1), std::string(), std::string("<html>")}) {
    lines_.clear();
    reply_ = status(200, body);
    EXPECT_FALSE(client()->fetch(one).has_value());
    ASSERT_EQ(lines_.size(), 1U);
    EXPECT_THAT(lines_.front(), HasSubstr(one.key.to_text()));
  }
}

TEST_F(Client, RefusalsOfItsVersionOrTokenAreToldWithTheirReason) {
  for (const int code : {400, 401, 404, 409, 413, 500}) {
    lines_.clear();
    reply_ = status(code);
    EXPECT_FALSE(client()->fetch(service_.wanted(1)).has_value());
    ASSERT_EQ(lines_.size(), 1U) << code;
    EXPECT_THAT(lines_.front(), HasSubstr("status " + std::to_string(code) + ", the reason"));
  }
}

TEST_F(Client, AServiceThatIsBusyOrCannotCompileAKernelIsAskedForTheNext) {
  const auto asking = client();
  for (const int code : {422, 503, 504}) {
    reply_ = status(code);
    EXPECT_FALSE(asking->fetch(service_.wanted(1)).has_value());
  }
  EXPECT_EQ(calls_, 3);
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Client, AProviderAsksTheServiceBeforeItCompilesAndKeepsWhatItGets) {
  PrivateFolder folder;
  auto own = std::make_shared<FakeBackend>();
  own->emitted = kernel::Language::cuda;
  const auto provider = [&] {
    attention::ProviderOptions options{{}, log_};
    options.service = client();
    return attention::KernelProvider(
        own, std::make_shared<cache::KernelCache>(cache::DiskStore(folder.path(), log_), 1 << 20, log_), options);
  };
  const attention::UserText text{&expression(), nullptr};
  auto first = provider();
  const auto served = first.get(spec_of(1), text);
  ASSERT_TRUE(served.has_value()) << served.error().message();
  EXPECT_EQ(served->ready->outcome, cache::Outcome::service);
  EXPECT_EQ(own->compiles, 0);
  EXPECT_EQ(first.metrics().service_answers.value(), 1U);
  EXPECT_EQ(first.metrics().kernels[cache::Outcome::service].value(), 1U);
  EXPECT_EQ(provider().get(spec_of(1), text)->ready->outcome, cache::Outcome::disk);
  reply_ = absent;
  auto alone = provider();
  EXPECT_EQ(alone.get(spec_of(2), text)->ready->outcome, cache::Outcome::built);
  EXPECT_EQ(own->compiles, 1);
  EXPECT_EQ(alone.metrics().service_failures.value(), 1U);
}

/// A process with another compiler than the service's, or none, that takes kernels of any.
class AnyCompiler : public Client {
 protected:
  AnyCompiler() {
    service_.backend->takes_binaries_of_others = own_->takes_binaries_of_others = true;
    own_->emitted = kernel::Language::cuda;
  }
  attention::KernelProvider provider(bool accept) {
    attention::ProviderOptions options{{}, log_};
    options.accept_other_compilers = accept;
    options.service = client(std::chrono::milliseconds(0));
    return attention::KernelProvider(
        own_, std::make_shared<cache::KernelCache>(cache::DiskStore(folder_.path(), log_), 1 << 20, log_), options);
  }
  PrivateFolder folder_;
  std::shared_ptr<FakeBackend> own_ = std::make_shared<FakeBackend>();
  attention::UserText text_{&expression(), nullptr};
};

TEST_F(AnyCompiler, AMachineWithoutACompilerGetsItsKernelsFromTheService) {
  own_->compiler.clear();
  const auto served = provider(true).get(spec_of(1), text_);
  ASSERT_TRUE(served.has_value()) << served.error().message();
  EXPECT_EQ(served->ready->outcome, cache::Outcome::service);
  EXPECT_EQ(service_.backend->compiles, 1);
  EXPECT_EQ(provider(false).get(spec_of(1), text_).error().code, ErrorCode::missing_component);
  reply_ = absent;
  const auto kept = provider(true).get(spec_of(1), text_);
  ASSERT_TRUE(kept.has_value()) << "found on disk by a process that starts when the service is gone";
  EXPECT_EQ(kept->ready->outcome, cache::Outcome::disk);
  EXPECT_EQ(provider(true).get(spec_of(2), text_).error().code, ErrorCode::missing_component);
}

TEST_F(AnyCompiler, OneWithAnotherCompilerTakesTheServicesOrItsOwn) {
  own_->compiler = "fake 2.0";
  EXPECT_EQ(provider(true).get(spec_of(1), text_)->ready->outcome, cache::Outcome::service);
  EXPECT_EQ(own_->compiles, 0);
  EXPECT_EQ(provider(false).get(spec_of(1), text_)->ready->outcome, cache::Outcome::built);
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_THAT(lines_.front(), HasSubstr("status 409"));
  reply_ = absent;
  EXPECT_EQ(provider(true).get(spec_of(2), text_)->ready->outcome, cache::Outcome::built);
}

TEST_F(AnyCompiler, WhatTheDeviceRefusesIsCompiledHereAndNotTakenFromTheServiceAgain) {
  own_->compiler = "fake 2.0";
  own_->load_failures = 1;
  const auto made = provider(true).get(spec_of(1), text_);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(made->ready->outcome, cache::Outcome::built);
  EXPECT_NE(made->ready->key, service_.wanted(1).key);
  EXPECT_EQ(own_->compiles, 1);
}

TEST_F(AnyCompiler, AnEntryOfAnotherAliasIsRefused) {
  own_->compiler.clear();
  const auto other = service_.compile(service_.wanted(2));
  reply_ = status(200, other.body);
  EXPECT_FALSE(provider(true).get(spec_of(1), text_).has_value());
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_THAT(lines_.front(), HasSubstr("of another kernel"));
  reply_ = status(200, "short");
  EXPECT_FALSE(provider(true).get(spec_of(1), text_).has_value());
}

TEST_F(Client, AFrozenCallDoesNotAskTheService) {
  attention::ProviderOptions options{{}, log_};
  options.service = client();
  auto own = std::make_shared<FakeBackend>();
  own->emitted = kernel::Language::cuda;
  attention::KernelProvider provider(own, std::make_shared<cache::KernelCache>(std::nullopt, 1 << 20, log_), options);
  const auto refused = provider.get(spec_of(1), {&expression(), nullptr}, MissPolicy::refuse);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::not_prepared);
  EXPECT_EQ(calls_, 0);
}

TEST_F(Client, AProviderPrefetchesWhatIsInNoCache) {
  attention::ProviderOptions options{{}, log_};
  options.service = client();
  auto own = std::make_shared<FakeBackend>();
  own->emitted = kernel::Language::cuda;
  attention::KernelProvider provider(own, std::make_shared<cache::KernelCache>(std::nullopt, 1 << 20, log_), options);
  const attention::UserText text{&expression(), nullptr};
  const auto one = spec_of(1), two = spec_of(2), three = spec_of(3);
  ASSERT_TRUE(provider.get(one, text).has_value());
  calls_ = 0;
  std::string body;
  reply_ = [&, serve = reply_](const network::HttpRequest& request) { return body = request.body, serve(request); };
  provider.prefetch({{&one, text}, {&two, text}, {&three, text}});
  EXPECT_EQ(calls_, 1);
  const auto asked = service::prefetch_from_text(body);
  ASSERT_EQ(asked->size(), 2U);
  EXPECT_EQ((*asked)[0]->spec, two);
  EXPECT_EQ((*asked)[1]->spec, three);
  provider.prefetch({{&one, text}});
  EXPECT_EQ(calls_, 1) << "nothing is missing";
}

}  // namespace
}  // namespace flashspan::testing
