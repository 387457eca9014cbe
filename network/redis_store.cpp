#include "network/redis_store.hpp"

#include <hiredis/hiredis.h>
#include <sys/time.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "network/address.hpp"
#include "network/ignore_sigpipe.hpp"

namespace flashspan::network {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr microseconds longest_connect = std::chrono::seconds(2);
constexpr std::string_view name_prefix = "flashspan:";

timeval to_timeval(microseconds time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  return {seconds.count(), (time - seconds).count()};
}

struct ContextDeleter {
  void operator()(redisContext* context) const { redisFree(context); }
};
using Context = std::unique_ptr<redisContext, ContextDeleter>;
struct ReplyDeleter {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, ReplyDeleter>;

class RedisStore final : public cache::BlobStore {
 public:
  RedisStore(RedisAddress address, std::chrono::milliseconds time_out)
      : address_(std::move(address)), time_out_(time_out) {}

  [[nodiscard]] std::string address() const override { return address_.shown(); }

  [[nodiscard]] Result<std::optional<std::vector<std::byte>>> get(const std::string& name) override {
    const std::string whole = std::string(name_prefix) + name;
    const auto reply = with_connection({"GET", whole});
    if (!reply) return reply.error();
    if ((*reply)->type == REDIS_REPLY_NIL) return std::optional<std::vector<std::byte>>();
    if ((*reply)->type != REDIS_REPLY_STRING) return failure("another type of value under " + whole);
    const auto bytes = std::as_bytes(std::span((*reply)->str, (*reply)->len));
    return std::optional(std::vector<std::byte>(bytes.begin(), bytes.end()));
  }

  [[nodiscard]] Result<void> put(const std::string& name, std::span<const std::byte> bytes) override {
    const std::string whole = std::string(name_prefix) + name;
    const auto reply = with_connection({"SET", whole, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
    if (!reply) return reply.error();
    return {};
  }

 private:
  using Arguments = std::vector<std::string_view>;

  [[nodiscard]] Error failure(const std::string& got) const {
    return {ErrorCode::io_error, address(), got, "a Redis or Valkey server that answers", ""};
  }

  [[nodiscard]] Error late() const {
    return failure("no answer in " + std::to_string(time_out_.count()) + " milliseconds");
  }
  [[nodiscard]] Error broken(const redisContext& context, Clock::time_point deadline) const {
    if (Clock::now() >= deadline) return late();
    return failure(context.errstr[0] != '\0' ? context.errstr : "no answer");
  }

  /// A connection that was idle may have been closed by the server: a second one is then tried.
  [[nodiscard]] Result<Reply> with_connection(const Arguments& arguments) {
    const IgnoreSigpipe ignored;
    const Clock::time_point deadline = Clock::now() + time_out_;
    if (Context idle = take_idle()) {
      auto reply = run(*idle, arguments, deadline);
      const bool lost = idle->err != 0;
      if (reply) give_back(std::move(idle));
      if (!lost) return reply;
    }
    auto fresh = connect(deadline);
    if (!fresh) return fresh.error();
    auto reply = run(**fresh, arguments, deadline);
    if (reply) give_back(*std::move(fresh));
    return reply;
  }

  /// An error that the server answers with leaves context.err at 0.
  [[nodiscard]] Result<Reply> run(redisContext& context, const Arguments& arguments, Clock::time_point deadline) const {
    std::vector<const char*> texts;
    std::vector<std::size_t> lengths;
    for (const std::string_view argument : arguments) {
      texts.push_back(argument.data());
      lengths.push_back(argument.size());
    }
    if (redisAppendCommandArgv(&context, static_cast<int>(texts.size()), texts.data(), lengths.data()) != REDIS_OK) {
      return broken(context, deadline);
    }
    auto reply = exchange(context, deadline);
    if (reply && (*reply)->type == REDIS_REPLY_ERROR) return failure(std::string((*reply)->str, (*reply)->len));
    return reply;
  }

  /// Sends what is to be sent, and waits for an answer. Step by step, as hiredis' limit is one for each: a server that
  /// sends its answer by the byte would have it anew for every byte.
  [[nodiscard]] Result<Reply> exchange(redisContext& context, Clock::time_point deadline) const {
    int sent = 0;
    while (sent == 0) {
      if (!limit_step(context, deadline)) return broken(context, deadline);
      if (redisBufferWrite(&context, &sent) != REDIS_OK) return broken(context, deadline);
    }
    void* reply = nullptr;
    while (reply == nullptr) {
      if (!limit_step(context, deadline)) return broken(context, deadline);
      if (redisBufferRead(&context) != REDIS_OK || redisGetReplyFromReader(&context, &reply) != REDIS_OK) {
        return broken(context, deadline);
      }
    }
    return Reply(static_cast<redisReply*>(reply));
  }

  /// False if no time is left: hiredis would take 0 for no limit.
  static bool limit_step(redisContext& context, Clock::time_point deadline) {
    const auto left = std::chrono::ceil<microseconds>(deadline - Clock::now());
    return left.count() > 0 && redisSetTimeout(&context, to_timeval(left)) == REDIS_OK;
  }

  [[nodiscard]] Result<Context> connect(Clock::time_point deadline) const {
    const auto left = std::chrono::ceil<microseconds>(deadline - Clock::now());
    if (left.count() <= 0) return late();
    const timeval limit = to_timeval(std::min(left, longest_connect));
    Context context(address_.socket.empty() ? redisConnectWithTimeout(address_.host.c_str(), address_.port, limit)
                                            : redisConnectUnixWithTimeout(address_.socket.c_str(), limit));
    if (context == nullptr) return failure("out of memory");
    if (context->err != 0) return failure(context->errstr);
    if (auto done = log_in(*context, deadline); !done) return done.error();
    return context;
  }

  [[nodiscard]] Result<void> log_in(redisContext& context, Clock::time_point deadline) const {
    Arguments login{"AUTH"};
    if (!address_.user.empty()) login.emplace_back(address_.user);
    if (!address_.password.empty()) {
      login.emplace_back(address_.password);
      if (auto done = run(context, login, deadline); !done) return done.error();
    }
    if (address_.database != 0) {
      const std::string number = std::to_string(address_.database);
      if (auto done = run(context, {"SELECT", number}, deadline); !done) return done.error();
    }
    return {};
  }

  [[nodiscard]] Context take_idle() {
    const std::scoped_lock lock(mutex_);
    if (idle_.empty()) return nullptr;
    Context context = std::move(idle_.back());
    idle_.pop_back();
    return context;
  }
  void give_back(Context context) {
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(context));
  }

  RedisAddress address_;
  std::chrono::milliseconds time_out_;
  std::mutex mutex_;
  std::vector<Context> idle_;  // as many as there ever were commands at a time
};

}  // namespace

Result<std::unique_ptr<cache::BlobStore>> open_redis_store(const std::string& url, std::chrono::milliseconds time_out) {
  auto address = parse_redis_address(url);
  if (!address) return address.error();
  return std::unique_ptr<cache::BlobStore>(std::make_unique<RedisStore>(*std::move(address), time_out));
}

}  // namespace flashspan::network
