// named_masks.cpp -- see named_masks.hpp.
//
// In the texts `q + kv_len - q_len` is the query's position among the keys: the last query stands beside the last
// key. It stays within 32 bits for all sequences that the library takes. Scalars are 64 bit, so they are compared
// and never added to anything.
#include "codegen/mask/named_masks.hpp"

#include <algorithm>
#include <charconv>

#include "codegen/mask/tokens.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan::mask {
namespace {

NamedMaskArgument at_least(std::int64_t smallest, std::string name, std::string meaning) {
  return {.name = std::move(name), .default_value = {}, .smallest = smallest, .meaning = std::move(meaning)};
}

NamedMaskArgument with_default(std::int64_t value, std::string name, std::string meaning) {
  return {.name = std::move(name), .default_value = value, .smallest = 0, .meaning = std::move(meaning)};
}

NamedMaskArgument bound(std::string name, const std::string& side) {
  return with_default(max_sequence_length, std::move(name), "keys " + side + " the query; all if not given");
}

TensorDeclaration per_token(std::string name) { return {.name = std::move(name), .dtype = DType::i32, .rank = 1}; }

std::vector<NamedMask> positional_masks() {
  return {
      {.name = "full", .arguments = {}, .tensors = {}, .text = "True", .meaning = "every query sees every key"},
      {.name = "causal",
       .arguments = {with_default(0, "top_left", "1: query i stands beside key i, even if there are more keys")},
       .tensors = {},
       .text = "k <= q + where(top_left == 0, kv_len - q_len, 0)",
       .meaning = "keys up to the query; the last query sees the last key"},
      {.name = "window",
       .arguments = {bound("left", "before"), bound("right", "behind")},
       .tensors = {},
       .text = "(q + kv_len - q_len - k <= left) & (k - (q + kv_len - q_len) <= right)",
       .meaning = "at most `left` keys before and `right` keys behind the query, and the one beside it"},
      {.name = "causal_window",
       .arguments = {at_least(0, "left", "keys before the query")},
       .tensors = {},
       .text = "(k <= q + kv_len - q_len) & (q + kv_len - q_len - k <= left)",
       .meaning = "sliding window: the last left + 1 keys"},
      {.name = "sink_window",
       .arguments = {at_least(0, "left", "keys before the query"), at_least(0, "sinks", "first keys, always seen")},
       .tensors = {},
       .text = "(k <= q + kv_len - q_len) & ((q + kv_len - q_len - k <= left) | (k < sinks))",
       .meaning = "causal sliding window that always sees the first `sinks` keys"},
      {.name = "global_window",
       .arguments = {at_least(0, "left", "keys before the query"), at_least(0, "right", "keys behind the query"),
                     at_least(0, "globals", "first tokens, which see all and are seen by all")},
       .tensors = {},
       .text = "(q + kv_len - q_len - k <= left) & (k - (q + kv_len - q_len) <= right) | (k < globals) | (q < globals)",
       .meaning = "sliding window, and the first `globals` tokens see all and are seen by all"},
      {.name = "dilated_window",
       .arguments = {at_least(0, "left", "how far back"), at_least(1, "step", "distance between keys")},
       .tensors = {},
       .text = "(k <= q + kv_len - q_len) & (q + kv_len - q_len - k <= left) & "
               "((q + kv_len - q_len - k) % step == 0)",
       .meaning = "every `step`-th key of a causal sliding window"},
      {.name = "chunked",
       .arguments = {at_least(1, "size", "tokens in a chunk")},
       .tensors = {},
       .text = "(k <= q + kv_len - q_len) & ((q + kv_len - q_len) // size == k // size)",
       .meaning = "causal within chunks of `size` tokens"},
      {.name = "prefix_lm",
       .arguments = {at_least(0, "prefix", "tokens in the prefix")},
       .tensors = {},
       .text = "(k <= q + kv_len - q_len) | (k < prefix)",
       .meaning = "causal, and every query sees the first `prefix` keys"},
  };
}

std::vector<NamedMask> document_masks() {
  return {
      {.name = "document",
       .arguments = {},
       .tensors = {per_token("doc")},
       .text = "doc[q] == doc[k]",
       .meaning = "tokens of one document see one another; doc[i] is the document of token i"},
      {.name = "causal_document",
       .arguments = {},
       .tensors = {per_token("doc")},
       .text = "(doc[q] == doc[k]) & (k <= q + kv_len - q_len)",
       .meaning = "causal within documents"},
      {.name = "prefix_lm_document",
       .arguments = {},
       .tensors = {per_token("doc"), per_token("prefix_end")},
       .text = "(doc[q] == doc[k]) & ((k <= q + kv_len - q_len) | (k < prefix_end[q]))",
       .meaning = "causal within documents, whose prefixes are seen by all of the document; prefix_end[i] is the "
                  "index behind the prefix of the document of token i"},
      {.name = "shared_question",
       .arguments = {},
       .tensors = {per_token("doc"), per_token("answer")},
       .text = "(doc[q] == doc[k]) & (k <= q + kv_len - q_len) & ((answer[k] == 0) | (answer[q] == answer[k]))",
       .meaning = "one question with several answers a document: answers see the question and themselves; "
                  "answer[i] is 0 in the question and the number of the answer elsewhere"},
      {.name = "causal_blockwise",
       .arguments = {at_least(0, "last_block", "number of the block that sees all before it")},
       .tensors = {per_token("block")},
       .text = "(k <= q + kv_len - q_len) & ((block[q] == block[k]) | (block[q] == last_block))",
       .meaning = "causal within blocks, and the last block sees all before it; block[i] is the block of token i"},
  };
}

std::vector<NamedMask> all_masks() {
  std::vector<NamedMask> masks = positional_masks();
  for (NamedMask& mask : document_masks()) masks.push_back(std::move(mask));
  return masks;
}

std::string list_of_arguments(const NamedMask& mask) {
  if (mask.arguments.empty()) return "no arguments";
  std::string list;
  for (const NamedMaskArgument& argument : mask.arguments) list += (list.empty() ? "" : ", ") + argument.name;
  return list;
}

// Reads the arguments of one call; see parse_named_mask().
class CallReader {
 public:
  CallReader(const std::string& text, const NamedMask& mask, const std::vector<Token>& tokens)
      : text_(text), mask_(mask), tokens_(tokens), values_(mask.arguments.size()) {}

  Result<NamedMaskCall> read() {
    while (position_ < tokens_.size() && !tokens_[position_].text.empty() && tokens_[position_].text != ")") {
      if (auto read = read_argument(); !read) return read.error();
      if (tokens_[position_].text == ",") {
        ++position_;
      } else if (tokens_[position_].text != ")") {
        return error(tokens_[position_], mask_.name, quoted(tokens_[position_]), "',' or ')'");
      }
    }
    NamedMaskCall call{.mask = &mask_, .values = {}};
    for (std::size_t place = 0; place < values_.size(); ++place) {
      const NamedMaskArgument& argument = mask_.arguments[place];
      const auto value = values_[place] ? values_[place] : argument.default_value;
      if (!value) return error(tokens_.front(), argument.name, "nothing", "an integer: " + argument.meaning);
      call.values.push_back(*value);
    }
    return call;
  }

 private:
  // `left=3` or `3`
  Result<void> read_argument() {
    const Token name = tokens_[position_];
    std::size_t place = next_positional_;
    if (name.kind == TokenKind::name && tokens_[position_ + 1].text == "=") {
      place = 0;
      while (place < mask_.arguments.size() && mask_.arguments[place].name != name.text) ++place;
      if (place == mask_.arguments.size()) {
        return error(name, mask_.name, "unknown argument " + quoted(name), list_of_arguments(mask_));
      }
      position_ += 2;
      next_positional_ = mask_.arguments.size();  // as in Python, none may follow
    } else if (place >= mask_.arguments.size()) {
      return error(name, mask_.name, quoted(name), list_of_arguments(mask_));
    } else {
      ++next_positional_;
    }
    if (values_[place]) return error(name, mask_.arguments[place].name, "two values", "one");
    return read_value(place);
  }

  Result<void> read_value(std::size_t place) {
    const NamedMaskArgument& argument = mask_.arguments[place];
    const Token first = tokens_[position_];
    const bool negative = first.text == "-";
    const Token number = tokens_[position_ + (negative ? 1 : 0)];
    std::string digits = negative ? "-" : "";
    for (const char c : number.text) {
      if (c != '_') digits += c;
    }
    std::int64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, value);
    if (number.kind != TokenKind::integer || read.ec != std::errc() || read.ptr != end) {
      return error(first, argument.name, first.text.empty() ? "end of text" : quoted(first), "an integer");
    }
    if (value < argument.smallest) {
      return error(first, argument.name, std::to_string(value), std::to_string(argument.smallest) + " or more");
    }
    position_ += negative ? 2 : 1;
    values_[place] = value;
    return {};
  }

  static std::string quoted(const Token& token) {
    return token.text.empty() ? "end of text" : "'" + std::string(token.text) + "'";
  }

  [[nodiscard]] Error error(const Token& token, const std::string& argument, std::string got, std::string takes) const {
    return error_at(text_, token.offset, argument, std::move(got), std::move(takes));
  }

  const std::string& text_;
  const NamedMask& mask_;
  const std::vector<Token>& tokens_;
  std::vector<std::optional<std::int64_t>> values_;
  std::size_t position_ = 2;  // behind "name("
  std::size_t next_positional_ = 0;
};

}  // namespace

const std::vector<NamedMask>& named_masks() {
  static const std::vector<NamedMask> masks = all_masks();
  return masks;
}

const NamedMask* find_named_mask(std::string_view name) {
  for (const NamedMask& mask : named_masks()) {
    if (mask.name == name) return &mask;
  }
  return nullptr;
}

Result<std::optional<NamedMaskCall>> parse_named_mask(const std::string& text) {
  const auto nothing = [] { return std::optional<NamedMaskCall>(); };
  const auto tokens = tokenize(text, "mask");
  if (!tokens) return nothing();  // the expression parser tells what is wrong
  const NamedMask* mask = find_named_mask(tokens->front().text);
  if (mask == nullptr) return nothing();
  const bool bare = tokens->size() == 2;  // the name and the end
  const auto closing = std::find_if(tokens->begin(), tokens->end(), [](const Token& t) { return t.text == ")"; });
  const bool call = (*tokens)[1].text == "(" && (closing == tokens->end() || tokens->end() - closing == 2);
  if (!bare && !call) return nothing();
  if (call && closing == tokens->end()) {
    return error_at(text, tokens->back().offset, mask->name, "end of text", "')' behind the arguments");
  }
  auto result = CallReader(text, *mask, *tokens).read();
  if (!result) return result.error();
  return std::optional<NamedMaskCall>(*std::move(result));
}

}  // namespace flashspan::mask
