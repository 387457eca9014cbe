#include "codegen/kernel/emit_llvm_writer.hpp"

#include <bit>
#include <cstdint>
#include <iomanip>
#include <sstream>

namespace flashspan::kernel {

std::string float_literal(double value) {
  std::ostringstream text;
  text << "0x" << std::hex << std::uppercase << std::setfill('0') << std::setw(16)
       << std::bit_cast<std::uint64_t>(value);
  return text.str();
}

std::string float_splat(double value) { return concat("splat (float ", float_literal(value), ")"); }

std::string int_splat(long long value) { return concat("splat (i32 ", value, ")"); }

std::string lane_numbers() {
  std::string lanes = "<";
  for (int lane = 0; lane < ir_lanes; ++lane) lanes += concat(lane == 0 ? "" : ", ", "i32 ", lane);
  return lanes + ">";
}

IrWriter::IrWriter(const std::string& head) : text_(concat(head, " {\nentry:\n")) {}

std::string IrWriter::finish(const std::string& result) { return concat(text_, "  ret ", result, "\n}\n\n"); }

void IrWriter::line(const std::string& instruction) { text_ += concat("  ", instruction, "\n"); }

std::string IrWriter::define(const std::string& instruction) {
  std::string name = concat("%v", next_value_++);
  line(concat(name, " = ", instruction));
  return name;
}

std::string IrWriter::binary(const char* operation, const char* type, const std::string& left,
                             const std::string& right) {
  return define(concat(operation, " ", type, " ", left, ", ", right));
}

std::string IrWriter::element_pointer(const char* type, const std::string& base, const std::string& index) {
  return define(concat("getelementptr ", type, ", ptr ", base, ", i64 ", index));
}

std::string IrWriter::load(const char* type, const std::string& pointer, int align) {
  return define(concat("load ", type, ", ptr ", pointer, ", align ", align));
}

void IrWriter::store(const char* type, const std::string& value, const std::string& pointer, int align) {
  line(concat("store ", type, " ", value, ", ptr ", pointer, ", align ", align));
}

std::string IrWriter::splat(const char* scalar_type, const std::string& scalar) {
  const std::string vector_type = concat("<", ir_lanes, " x ", scalar_type, ">");
  const std::string first =
      define(concat("insertelement ", vector_type, " poison, ", scalar_type, " ", scalar, ", i64 0"));
  return define(concat("shufflevector ", vector_type, " ", first, ", ", vector_type, " poison, <", ir_lanes,
                       " x i32> zeroinitializer"));
}

std::string IrWriter::fused(const std::string& a, const std::string& b, const std::string& c) {
  return define(
      concat("call <16 x float> @llvm.fma.v16f32(<16 x float> ", a, ", <16 x float> ", b, ", <16 x float> ", c, ")"));
}

std::string IrWriter::fresh_label() { return concat("block", next_label_++); }

void IrWriter::begin_block(const std::string& label) {
  text_ += concat(label, ":\n");
  block_ = label;
}

IrWriter::Values IrWriter::loop(const std::string& begin, const std::string& end, int step,
                                const std::vector<TypedValue>& carried,
                                const std::function<Values(const std::string&, const Values&)>& body) {
  std::vector<TypedValue> state{{"i64", begin}};
  state.insert(state.end(), carried.begin(), carried.end());
  Values last = loop_while(
      state, [&](const Values& values) { return define(concat("icmp slt i64 ", values[0], ", ", end)); },
      [&](const Values& values) {
        Values next = body(values[0], Values(values.begin() + 1, values.end()));
        next.insert(next.begin(), define(concat("add nuw nsw i64 ", values[0], ", ", step)));
        return next;
      });
  last.erase(last.begin());
  return last;
}

IrWriter::Values IrWriter::loop_while(const std::vector<TypedValue>& carried,
                                      const std::function<std::string(const Values&)>& condition,
                                      const std::function<Values(const Values&)>& body) {
  const std::string header = fresh_label();
  const std::string inside = fresh_label();
  const std::string after = fresh_label();
  const std::string before = block_;
  line(concat("br label %", header));
  begin_block(header);
  const std::size_t phi_position = text_.size();
  Values current;
  for (std::size_t i = 0; i < carried.size(); ++i) current.push_back(concat("%v", next_value_++));
  line(concat("br i1 ", condition(current), ", label %", inside, ", label %", after));
  begin_block(inside);
  const Values next = body(current);
  line(concat("br label %", header));
  std::string phis;
  for (std::size_t i = 0; i < carried.size(); ++i) {
    phis += concat("  ", current[i], " = phi ", carried[i].type, " [ ", carried[i].value, ", %", before, " ], [ ",
                   next[i], ", %", block_, " ]\n");
  }
  text_.insert(phi_position, phis);
  begin_block(after);
  return current;
}

IrWriter::Values IrWriter::branch(const std::string& condition, const std::vector<std::string>& types,
                                  const std::function<Values()>& if_true, const std::function<Values()>& if_false) {
  const std::string true_label = fresh_label();
  const std::string false_label = fresh_label();
  const std::string after = fresh_label();
  line(concat("br i1 ", condition, ", label %", true_label, ", label %", false_label));
  begin_block(true_label);
  const Values true_values = if_true();
  const std::string true_end = block_;
  line(concat("br label %", after));
  begin_block(false_label);
  const Values false_values = if_false();
  const std::string false_end = block_;
  line(concat("br label %", after));
  begin_block(after);
  Values merged;
  for (std::size_t i = 0; i < types.size(); ++i) {
    merged.push_back(define(concat("phi ", types[i], " [ ", true_values[i], ", %", true_end, " ], [ ", false_values[i],
                                   ", %", false_end, " ]")));
  }
  return merged;
}

}  // namespace flashspan::kernel
