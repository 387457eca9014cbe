// random_programs.cpp -- see random_programs.hpp.
#include "tests/mask/random_programs.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "tests/mask/random_choice.hpp"

namespace flashspan::mask::test {
namespace {

__extension__ typedef __int128 Wide;  // no operation of two 64-bit integers leaves it

// Python's precedence, lowest first.
enum Level { conditional, either, both, negated, comparison, bit_or, bit_and, sum, product, sign, atom };

std::int64_t wrapped(Wide value) { return static_cast<std::int64_t>(static_cast<std::uint64_t>(value)); }

Wide floor_quotient(Wide a, Wide b) {
  Wide quotient = a / b;
  while (quotient * b > a && b > 0) --quotient;
  while (quotient * b < a && b < 0) --quotient;
  return quotient;
}

Value integer_value(std::int64_t integer) { return {.integer = integer, .real = 0, .truth = false}; }
Value real_value(float real) { return {.integer = 0, .real = real, .truth = false}; }
Value truth_value(bool truth) { return {.integer = 0, .real = 0, .truth = truth}; }

class Generator {
 public:
  Generator(Random& random, const Grammar& grammar) : random_(random), grammar_(grammar) {}

  Expression any_of(ValueType type, int depth) {
    switch (type) {
      case ValueType::boolean:
        return boolean(depth);
      case ValueType::integer:
        return integer(depth);
      case ValueType::real:
        return real(depth);
    }
    return {};
  }

 private:
  // Text of `child` where at least `level` is needed; sometimes with parentheses or blanks that are not.
  std::string inside(const Expression& child, int level) {
    if (child.level < level || chance(random_, 10)) return "(" + blank() + child.text + ")";
    return child.text;
  }
  std::string blank() { return chance(random_, 5) ? (chance(random_, 50) ? "\n " : "  ") : ""; }

  Expression infix(ValueType type, const std::string& symbol, int level, const Expression& a, const Expression& b,
                   std::function<Value(const Value&, const Value&)> compute) {
    const int left = level == comparison ? level + 1 : level;
    const std::string gap = chance(random_, 80) ? " " : blank();
    const bool is_word = symbol == "and" || symbol == "or";
    const std::string around = is_word ? " " : gap;
    return {type, inside(a, left) + around + symbol + around + inside(b, level + 1), level,
            [a = a.value, b = b.value, compute = std::move(compute)](Environment& e) {
              const Value left_value = a(e);
              return compute(left_value, b(e));
            }};
  }

  Expression call(ValueType type, const std::string& name, const Expression& a,
                  std::function<Value(const Value&)> compute) {
    return {type, name + "(" + a.text + ")", atom,
            [a = a.value, compute = std::move(compute)](Environment& e) { return compute(a(e)); }};
  }

  Expression choice(ValueType type, int depth) {
    const Expression c = boolean(depth - 1);
    const Expression a = any_of(type, depth - 1);
    const Expression b = any_of(type, depth - 1);
    const auto value = [c = c.value, a = a.value, b = b.value](Environment& e) { return c(e).truth ? a(e) : b(e); };
    if (chance(random_, 50)) return {type, "where(" + c.text + ", " + a.text + ", " + b.text + ")", atom, value};
    return {type, inside(a, either) + " if " + inside(c, either) + " else " + inside(b, conditional), conditional,
            value};
  }

  Expression boolean(int depth) {
    if (depth <= 0 || chance(random_, 3)) return boolean_leaf();
    if (loops_.size() == 1 && chance(random_, 20)) return loop(depth);  // one loop inside another
    switch (pick(random_, 0, 11)) {
      case 0:
        return choice(ValueType::boolean, depth);
      case 1: {
        const Expression a = boolean(depth - 1);
        const bool word = chance(random_, 50);
        return {ValueType::boolean, word ? "not " + inside(a, negated) : "~" + inside(a, sign), word ? negated : sign,
                [a = a.value](Environment& e) { return truth_value(!a(e).truth); }};
      }
      case 2:
      case 3: {
        const bool word = chance(random_, 30);
        return infix(ValueType::boolean, word ? "and" : "&", word ? both : bit_and, boolean(depth - 1),
                     boolean(depth - 1),
                     [](const Value& a, const Value& b) { return truth_value(a.truth && b.truth); });
      }
      case 4: {
        const bool word = chance(random_, 30);
        return infix(ValueType::boolean, word ? "or" : "|", word ? either : bit_or, boolean(depth - 1),
                     boolean(depth - 1),
                     [](const Value& a, const Value& b) { return truth_value(a.truth || b.truth); });
      }
      case 5:
        return loop(depth);
      case 6:
        return chain(depth);
      case 7: {
        const bool same = chance(random_, 50);
        return infix(ValueType::boolean, same ? "==" : "!=", comparison, boolean(depth - 1), boolean(depth - 1),
                     [same](const Value& a, const Value& b) { return truth_value((a.truth == b.truth) == same); });
      }
      default:
        return compare(depth);
    }
  }

  Expression boolean_leaf() {
    const bool truth = chance(random_, 50);
    if (chance(random_, 20)) {
      return {ValueType::boolean, truth ? "True" : "False", atom, [truth](Environment&) { return truth_value(truth); }};
    }
    return compare(0);
  }

  struct Comparison {
    const char* symbol;
    bool (*integers)(std::int64_t, std::int64_t);
    bool (*reals)(float, float);
  };
  static const std::vector<Comparison>& comparisons() {
    static const std::vector<Comparison> all = {
        {"<", [](std::int64_t a, std::int64_t b) { return a < b; }, [](float a, float b) { return a < b; }},
        {"<=", [](std::int64_t a, std::int64_t b) { return a <= b; }, [](float a, float b) { return a <= b; }},
        {">", [](std::int64_t a, std::int64_t b) { return a > b; }, [](float a, float b) { return a > b; }},
        {">=", [](std::int64_t a, std::int64_t b) { return a >= b; }, [](float a, float b) { return a >= b; }},
        {"==", [](std::int64_t a, std::int64_t b) { return a == b; }, [](float a, float b) { return a == b; }},
        {"!=", [](std::int64_t a, std::int64_t b) { return a != b; }, [](float a, float b) { return a != b; }}};
    return all;
  }

  Expression compare(int depth) {
    const Comparison with = comparisons()[static_cast<std::size_t>(pick(random_, 0, 5))];
    const bool reals = grammar_.may_use_reals && chance(random_, 25);
    const Expression a = reals ? real(depth - 1) : integer(depth - 1);
    const bool mixed = reals && chance(random_, 30);  // the integer is promoted
    const Expression b = reals && !mixed ? real(depth - 1) : integer(depth - 1);
    return infix(ValueType::boolean, with.symbol, comparison, a, b, [=](const Value& left, const Value& right) {
      if (!reals) return truth_value(with.integers(left.integer, right.integer));
      return truth_value(with.reals(left.real, mixed ? static_cast<float>(right.integer) : right.real));
    });
  }

  // a < b >= c: both hold.
  Expression chain(int depth) {
    const Comparison first = comparisons()[static_cast<std::size_t>(pick(random_, 0, 5))];
    const Comparison second = comparisons()[static_cast<std::size_t>(pick(random_, 0, 5))];
    const Expression a = integer(depth - 1);
    const Expression b = integer(depth - 1);
    const Expression c = integer(depth - 1);
    const std::string text = inside(a, bit_or) + " " + first.symbol + " " + inside(b, bit_or) + " " + second.symbol +
                             " " + inside(c, bit_or);
    return {ValueType::boolean, text, comparison, [=, a = a.value, b = b.value, c = c.value](Environment& e) {
              const std::int64_t middle = b(e).integer;
              return truth_value(first.integers(a(e).integer, middle) && second.integers(middle, c(e).integer));
            }};
  }

  Expression loop(int depth) {
    if (loops_.size() >= 2) return compare(depth);
    const bool two_bounds = chance(random_, 60);
    const std::int64_t most = pick(random_, 1, 6);
    const Expression begin = integer(depth - 2);
    const Expression end = integer(depth - 2);
    const std::string name = "r_" + std::to_string(loops_.size());
    loops_.push_back(name);
    const Expression body = boolean(depth - 1);
    loops_.pop_back();
    const std::string modulus = " % " + std::to_string(most);
    const std::string first = two_bounds ? "-2 + " + inside(begin, product) + modulus + ", " : "";
    return {ValueType::boolean,
            "any(" + body.text + " for " + name + " in range(" + first + inside(end, product) + modulus + "))", atom,
            [=, body = body.value, begin = begin.value, end = end.value](Environment& e) {
              const auto bounded = [&](std::int64_t value) {
                return static_cast<std::int64_t>(value - floor_quotient(value, most) * most);
              };
              const std::int64_t from = two_bounds ? bounded(begin(e).integer) - 2 : 0;
              const std::int64_t to = bounded(end(e).integer);
              bool found = false;
              for (std::int64_t value = from; value < to; ++value) {
                e.integers[name] = value;
                found = body(e).truth || found;
              }
              return truth_value(found);
            }};
  }

  Expression integer(int depth) {
    if (depth <= 0 || chance(random_, 10)) return integer_leaf(depth);
    const auto binary = [&](const char* symbol, int level, auto compute) {
      return infix(ValueType::integer, symbol, level, integer(depth - 1), integer(depth - 1),
                   [compute](const Value& a, const Value& b) { return integer_value(compute(a.integer, b.integer)); });
    };
    switch (pick(random_, 0, 10)) {
      case 0:
        return binary("+", sum, [](Wide a, Wide b) { return wrapped(a + b); });
      case 1:
      case 2:
        return binary("-", sum, [](Wide a, Wide b) { return wrapped(a - b); });
      case 3:
        return binary("*", product, [](Wide a, Wide b) { return wrapped(a * b); });
      case 4:
        return binary("//", product, [](Wide a, Wide b) { return b == 0 ? 0 : wrapped(floor_quotient(a, b)); });
      case 5:
        return binary("%", product, [](Wide a, Wide b) { return b == 0 ? 0 : wrapped(a - floor_quotient(a, b) * b); });
      case 6: {
        const Expression a = integer(depth - 1);
        return {ValueType::integer, "-" + inside(a, sign), sign,
                [a = a.value](Environment& e) { return integer_value(wrapped(-Wide{a(e).integer})); }};
      }
      case 7:
        return extremum(ValueType::integer, depth);
      case 8:
        return call(ValueType::integer, "abs", integer(depth - 1), [](const Value& a) {
          return integer_value(a.integer < 0 ? wrapped(-Wide{a.integer}) : a.integer);
        });
      case 9:
        return choice(ValueType::integer, depth);
      default:
        return lookup(ValueType::integer, depth);
    }
  }

  // min and max with two or three arguments.
  Expression extremum(ValueType type, int depth) {
    const bool least = chance(random_, 50);
    std::vector<Expression> arguments;
    for (std::int64_t count = pick(random_, 2, 3); count > 0; --count) arguments.push_back(any_of(type, depth - 1));
    std::string text;
    for (const Expression& argument : arguments) text += (text.empty() ? "" : ", ") + argument.text;
    return {type, (least ? "min(" : "max(") + text + ")", atom, [=](Environment& e) {
              Value result = arguments[0].value(e);
              for (std::size_t i = 1; i < arguments.size(); ++i) {
                const Value next = arguments[i].value(e);
                const bool keep = type == ValueType::integer
                                      ? (least ? result.integer < next.integer : result.integer > next.integer)
                                      : (least ? result.real < next.real : result.real > next.real);
                if (!keep) result = next;
              }
              return result;
            }};
  }

  Expression lookup(ValueType type, int depth) {
    static const std::vector<std::pair<std::string, int>> integer_tables = {{"doc", 1}, {"table", 2}, {"cube", 3}};
    static const std::vector<std::pair<std::string, int>> real_tables = {{"bias", 2}, {"half", 1}, {"brain", 2}};
    const auto& tables = type == ValueType::integer ? integer_tables : real_tables;
    const auto [name, rank] = tables[static_cast<std::size_t>(pick(random_, 0, 2))];
    std::vector<std::function<Value(Environment&)>> indices;
    std::string text;
    for (int axis = 0; axis < rank; ++axis) {
      const Expression index = integer(std::min(depth - 1, 1));
      text += (text.empty() ? "" : ", ") + index.text;
      indices.push_back(index.value);
    }
    return {type, name + "[" + text + "]", atom, [=, name = name](Environment& e) {
              std::vector<std::int64_t> at(indices.size());
              std::transform(indices.begin(), indices.end(), at.begin(),
                             [&](const auto& index) { return index(e).integer; });
              const double element = e.tables.at(name).at(at);
              return type == ValueType::integer ? integer_value(static_cast<std::int64_t>(element))
                                                : real_value(static_cast<float>(element));
            }};
  }

  Expression integer_leaf(int depth) {
    const std::int64_t kind = pick(random_, 0, 9);
    if (kind == 0) return constant(chance(random_, 5) ? pick(random_, INT64_MIN, INT64_MAX) : pick(random_, 0, 9));
    if (kind == 1) return constant(pick(random_, -4, 4));
    if (kind == 2 && depth > -2) return lookup(ValueType::integer, depth);
    if (kind >= 7 && !loops_.empty())
      return named_integer(loops_[static_cast<std::size_t>(pick(random_, 0, std::ssize(loops_) - 1))]);
    if (kind == 4) return named_integer(chance(random_, 70) ? "left" : "huge");
    static const std::vector<std::pair<const char*, std::int64_t Environment::*>> variables = {
        {"q", &Environment::q}, {"k", &Environment::k},         {"q", &Environment::q},
        {"k", &Environment::k}, {"q_len", &Environment::q_len}, {"kv_len", &Environment::kv_len},
        {"b", &Environment::b}, {"h", &Environment::h}};
    const auto [name, member] = variables[static_cast<std::size_t>(pick(random_, 0, 7))];
    return {ValueType::integer, name, atom, [member = member](Environment& e) { return integer_value(e.*member); }};
  }

  Expression constant(std::int64_t value) {
    std::string text = std::to_string(value);
    if (value >= 0 && chance(random_, 20)) {
      std::array<char, 32> buffer{};
      std::snprintf(buffer.data(), buffer.size(), "0x%llx", static_cast<unsigned long long>(value));
      text = buffer.data();
    }
    return {ValueType::integer, text, value < 0 ? sign : atom, [value](Environment&) { return integer_value(value); }};
  }

  Expression named_integer(const std::string& name) {
    return {ValueType::integer, name, atom, [name](Environment& e) { return integer_value(e.integers.at(name)); }};
  }

  Expression real(int depth) {
    if (depth <= 0 || chance(random_, 10)) return real_leaf(depth);
    const auto binary = [&](const char* symbol, int level, float (*compute)(float, float)) {
      const bool promoted = chance(random_, 20);  // one integer operand
      const Expression right = promoted ? integer(depth - 1) : real(depth - 1);
      return infix(ValueType::real, symbol, level, real(depth - 1), right, [=](const Value& a, const Value& b) {
        return real_value(compute(a.real, promoted ? static_cast<float>(b.integer) : b.real));
      });
    };
    const auto function = [&](const char* name, float (*compute)(float)) {
      return call(ValueType::real, name, real(depth - 1), [=](const Value& a) { return real_value(compute(a.real)); });
    };
    switch (pick(random_, 0, 14)) {
      case 0:
        return binary("+", sum, [](float a, float b) { return a + b; });
      case 1:
        return binary("-", sum, [](float a, float b) { return a - b; });
      case 2:
        return binary("*", product, [](float a, float b) { return a * b; });
      case 3:
        return binary("/", product, [](float a, float b) { return b == 0 ? 0 : a / b; });
      case 4:  // '/' between integers gives a real
        return infix(ValueType::real, "/", product, integer(depth - 1), integer(depth - 1),
                     [](const Value& a, const Value& b) {
                       const auto divisor = static_cast<float>(b.integer);
                       return real_value(divisor == 0 ? 0 : static_cast<float>(a.integer) / divisor);
                     });
      case 5: {
        const Expression a = real(depth - 1);
        return {ValueType::real, "-" + inside(a, sign), sign,
                [a = a.value](Environment& e) { return real_value(-a(e).real); }};
      }
      case 6:
        return extremum(ValueType::real, depth);
      case 7:
        return function("abs", [](float a) { return std::fabs(a); });
      case 8:
        return function("tanh", [](float a) { return std::tanh(a); });
      case 9:
        return function("exp", [](float a) { return std::exp(a); });
      case 10:
        return function("log", [](float a) { return std::log(a); });
      case 11:
        return function("sqrt", [](float a) { return std::sqrt(a); });
      case 12:
        return choice(ValueType::real, depth);
      case 13:
        return call(ValueType::real, "float", integer(depth - 1),
                    [](const Value& a) { return real_value(static_cast<float>(a.integer)); });
      default:
        return lookup(ValueType::real, depth);
    }
  }

  Expression real_leaf(int depth) {
    if (grammar_.may_use_score && chance(random_, 40)) {
      return {ValueType::real, "score", atom, [](Environment& e) { return real_value(e.score); }};
    }
    if (chance(random_, 40)) {
      static const std::vector<std::pair<const char*, float>> constants = {
          {"0.0", 0.0f}, {"1.0", 1.0f}, {".5", 0.5f}, {"2.", 2.0f}, {"0.1", 0.1f}, {"3e-2", 0.03f}, {"1e30", 1e30f}};
      const auto [text, value] = constants[static_cast<std::size_t>(pick(random_, 0, 6))];
      return {ValueType::real, text, atom, [value = value](Environment&) { return real_value(value); }};
    }
    if (depth > -2 && chance(random_, 40)) return lookup(ValueType::real, depth);
    return {ValueType::real, "slope", atom, [](Environment& e) { return real_value(e.reals.at("slope")); }};
  }

  Random& random_;
  const Grammar grammar_;
  std::vector<std::string> loops_;
};

}  // namespace

Expression random_expression(std::mt19937_64& random, ValueType type, const Grammar& grammar) {
  return Generator(random, grammar).any_of(type, grammar.depth);
}

}  // namespace flashspan::mask::test
