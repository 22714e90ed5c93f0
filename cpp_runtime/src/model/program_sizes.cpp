// torch itself: torch/export/_unlift.py, _get_input_guards_for_graph.

#include "model/program_sizes.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <lensbox/error.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "model/program_signature.h"

namespace lensbox {
namespace {

using Kind = Expression::Kind;

// torch lets sizes 0 and 1 pass a least size of 2: it writes this where it took a size for no 0 and no 1.
constexpr int64_t kLeastUnchecked = 2;
constexpr int64_t kUnlimited = INT64_MAX - 1;  // sympy's infinity of ints, as some files have it

// factor * symbol + term
struct Linear {
  std::optional<size_t> symbol;
  int64_t factor = 0, term = 0;
  bool operator==(const Linear&) const = default;
};

// Return an expression of one symbol as a linear one; nothing if it is none. Throws c10::Error.
std::optional<Linear> linear_of(const Expression& expression) {
  if (expression.kind == Kind::kNumber && std::holds_alternative<int64_t>(expression.number)) {
    return Linear{{}, 0, std::get<int64_t>(expression.number)};
  }
  if (expression.kind == Kind::kName) return Linear{expression.slot, 1, 0};
  const std::string& name = expression.name;
  if (name != "_operator.add" && name != "_operator.sub" && name != "_operator.mul" &&
      name != "_operator.neg") {
    return {};
  }
  const auto computed = [](const std::string& op, int64_t a, int64_t b) {
    const Number numbers[] = {a, b};
    return std::get<int64_t>((*find_number_op(op))(Numbers(numbers)));
  };
  std::optional<Linear> whole = name == "_operator.neg" ? std::optional(Linear{}) : std::nullopt;
  for (const Expression& part : expression.parts) {
    const std::optional<Linear> next = linear_of(part);
    if (!next) return {};
    if (!whole) {
      whole = next;
      continue;
    }
    const auto symbol = whole->symbol ? whole->symbol : next->symbol;
    if (whole->symbol && next->symbol && (whole->symbol != next->symbol || name == "_operator.mul"))
      return {};
    if (name == "_operator.mul") {
      const int64_t scale = whole->symbol ? next->term : whole->term;
      const Linear& scaled = whole->symbol ? *whole : *next;
      whole = Linear{symbol, computed(name, scaled.factor, scale), computed(name, scaled.term, scale)};
    } else {
      const std::string op = name == "_operator.neg" ? "_operator.sub" : name;
      whole =
          Linear{symbol, computed(op, whole->factor, next->factor), computed(op, whole->term, next->term)};
    }
  }
  return whole;
}

// Makes rules of facts from the file's expressions of symbols.
class SizeRulesReader {
 public:
  SizeRulesReader(SizeRules& rules, const std::vector<GraphInput>& inputs, const GraphJson& module,
                  const std::vector<int64_t>& place_of_leaf)
      : rules_(rules), inputs_(inputs), signature_(module), place_of_leaf_(place_of_leaf) {}

  // Note the expressions of all sizes, and that all sizes of a symbol are equal.
  void read_sizes() {
    std::vector<std::pair<size_t, Expression>> sizes;  // fact and its expression of symbols
    for (size_t input = 0; input < inputs_.size(); ++input) {
      for (size_t i = 0; i < inputs_[input].sizes.size(); ++i) {
        const std::string& text = inputs_[input].free_sizes[i];
        if (text.empty()) continue;
        const size_t fact = fact_of({SizeFact::Kind::kSize, input, static_cast<int64_t>(i)});
        sizes.emplace_back(fact, parsed(text));
        const Expression& expression = sizes.back().second;
        if (expression.kind == Kind::kName) facts_of_symbols_.try_emplace(expression.slot, fact);
      }
    }
    for (const auto& [fact, expression] : sizes) {
      if (const auto value = of_facts(expression)) {
        if (value->kind != Kind::kName || value->slot != fact) {
          add("_operator.eq", named(fact), *value);
        }
        continue;
      }
      // Of a symbol that is no size itself, as 32*h: the first such size tells the symbol.
      const auto linear = linear_of(expression);
      if (!linear || !linear->symbol || linear->factor <= 0) {
        throw GraphError("the size " + rules_.facts[fact].name + " cannot be compared with others: " +
                         text_of(expression, [&](size_t symbol) { return symbols_[symbol]; }));
      }
      const auto [first, is_new] = hidden_.try_emplace(*linear->symbol, fact, *linear);
      if (!is_new)
        add("_operator.eq", times(first->second.second.factor, fact, linear->term),
            times(linear->factor, first->second.first, first->second.second.term));
    }
    sizes_ = std::move(sizes);
  }

  void read_ranges(const GraphJson& ranges) {
    const size_t known = symbols_.size();
    for (const auto& [text, range] : ranges.items()) {
      const Expression expression = parsed(text);
      bool is_of_sizes = true;
      each_name(expression, [&](const Expression& name) { is_of_sizes &= name.slot < known; });
      if (!is_of_sizes) {  // of data, or of symbols that the graph no longer has
        if (expression.kind == Kind::kName) rules_.data_ranges[text] = range_of(range);
        continue;
      }
      read_range(expression, range_of(range));
    }
  }

  void read_guards(const GraphJson& guards) {
    for (const GraphJson& guard : guards) {
      const auto text = guard.get<std::string>();
      rules_.rules.push_back(
          parse_expression(text, [&](const std::string& name, const std::vector<PathStep>& steps) {
            return fact_of(source_of(name, steps));
          }));
    }
  }

 private:
  static SizeRange range_of(const GraphJson& range) {
    SizeRange limits;
    const auto read = [&](const char* key, int64_t& limit) {
      const GraphJson& value = range.at(key);
      // Ranges of floats say nothing: their guards do.
      if (!value.is_null() && !value.is_number_float() && !value.is_string()) limit = as_integer(value);
    };
    read("min_val", limits.least);
    read("max_val", limits.most);
    if (limits.most >= kUnlimited) limits.most = INT64_MAX;
    return limits;
  }

  // Let an expression of sizes be within limits.
  void read_range(const Expression& expression, const SizeRange& range) {
    const auto limit = [&](const char* op, int64_t limit) {
      const auto linear = linear_of(expression);
      for (const auto& [fact, size] : sizes_) {
        if (linear && linear_of(size) == linear) return add(op, named(fact), constant(limit));
      }
      if (const auto value = of_facts(expression)) return add(op, *value, constant(limit));
      if (!linear || !linear->symbol || !hidden_.contains(*linear->symbol)) {
        throw GraphError("the range of " +
                         text_of(expression, [&](size_t symbol) { return symbols_[symbol]; }) +
                         " cannot be checked");
      }
      // factor * symbol + term, where symbol is (size - first.term) / first.factor.
      const auto& [fact, first] = hidden_.at(*linear->symbol);
      const Expression scaled = call("_operator.mul", {constant(linear->factor), minus(fact, first.term)});
      const Expression bound = call("_operator.sub", {constant(limit), constant(linear->term)});
      add(op, scaled, call("_operator.mul", {constant(first.factor), bound}));
    };
    if (range.least > kLeastUnchecked) limit("_operator.ge", range.least);
    if (range.most < INT64_MAX) limit("_operator.le", range.most);
  }

  Expression parsed(const std::string& text) {
    return parse_expression(text, [&](const std::string& name, const auto& /*steps*/) -> size_t {
      const auto found = std::ranges::find(symbols_, name);
      if (found != symbols_.end()) return found - symbols_.begin();
      symbols_.push_back(name);
      return symbols_.size() - 1;
    });
  }

  // Return an expression of symbols as one of facts; nothing if a symbol is no size of an input itself.
  std::optional<Expression> of_facts(Expression expression) const {
    if (expression.kind == Kind::kName) {
      const auto found = facts_of_symbols_.find(expression.slot);
      return found == facts_of_symbols_.end() ? std::nullopt : std::optional(named(found->second));
    }
    for (Expression& part : expression.parts) {
      std::optional<Expression> value = of_facts(std::move(part));
      if (!value) return {};
      part = *std::move(value);
    }
    return expression;
  }

  // Return what a guard's name means.
  SizeFact source_of(const std::string& name, std::vector<PathStep> path) const {
    SizeFact fact;
    const auto ends_in = [&](const char* key, bool is_call, bool has_index) {
      const size_t count = 1 + (is_call ? 1 : 0) + (has_index ? 1 : 0);
      if (path.size() <= count || path[path.size() - count].key != key) return false;
      if (has_index && !path.back().index) return false;
      if (has_index) fact.dimension = *path.back().index;
      path.resize(path.size() - count);
      return true;
    };
    if (ends_in("size", true, true) || ends_in("shape", false, true)) {
      fact.kind = SizeFact::Kind::kSize;
    } else if (ends_in("stride", true, true)) {
      fact.kind = SizeFact::Kind::kStride;
    } else if (ends_in("storage_offset", true, false)) {
      fact.kind = SizeFact::Kind::kOffset;
    } else {
      throw std::runtime_error("it reads " + name + ", which is no size of an input");
    }
    const auto leaf = signature_.find(path);
    if (!name.starts_with("L[") || !leaf || *leaf >= place_of_leaf_.size() || place_of_leaf_[*leaf] < 0) {
      throw std::runtime_error("it reads " + name + ", which is of no input that is a tensor");
    }
    fact.input = place_of_leaf_[*leaf];
    if (fact.dimension >= static_cast<int64_t>(inputs_[fact.input].sizes.size()) &&
        fact.kind != SizeFact::Kind::kOffset) {
      throw std::runtime_error("it reads " + name + ", a dimension that the input does not have");
    }
    return fact;
  }

  size_t fact_of(SizeFact fact) {
    const std::string index = '[' + std::to_string(fact.dimension) + ']';
    fact.name = inputs_[fact.input].name + (fact.kind == SizeFact::Kind::kSize     ? ".shape" + index
                                            : fact.kind == SizeFact::Kind::kStride ? ".stride()" + index
                                                                                   : ".storage_offset()");
    auto& facts = rules_.facts;
    const auto found = std::ranges::find(facts, fact);
    if (found != facts.end()) return found - facts.begin();
    facts.push_back(std::move(fact));
    return facts.size() - 1;
  }

  Expression named(size_t fact) const {
    return {.kind = Kind::kName, .slot = fact, .name = rules_.facts[fact].name};
  }

  Expression minus(size_t fact, int64_t term) const {
    return term == 0 ? named(fact) : call("_operator.sub", {named(fact), constant(term)});
  }

  // Return factor * (fact - term).
  Expression times(int64_t factor, size_t fact, int64_t term) const {
    return factor == 1 ? minus(fact, term) : call("_operator.mul", {constant(factor), minus(fact, term)});
  }

  void add(const char* op, Expression left, Expression right) {
    rules_.rules.push_back(call(op, {std::move(left), std::move(right)}));
  }

  SizeRules& rules_;
  const std::vector<GraphInput>& inputs_;
  const ProgramSignature signature_;
  const std::vector<int64_t>& place_of_leaf_;
  std::vector<std::string> symbols_;
  std::map<size_t, size_t> facts_of_symbols_;           // of symbols that are sizes themselves
  std::map<size_t, std::pair<size_t, Linear>> hidden_;  // of other symbols: the first size, and what it is
  std::vector<std::pair<size_t, Expression>> sizes_;    // all facts that are sizes, in symbols
};

}  // namespace

SizeRules read_size_rules(const GraphJson& program, const std::vector<GraphInput>& inputs,
                          const std::vector<int64_t>& place_of_leaf) {
  SizeRules rules;
  SizeRulesReader reader(rules, inputs, program.at("graph_module"), place_of_leaf);
  reader.read_sizes();
  reader.read_ranges(program.at("range_constraints"));
  reader.read_guards(program.value("guards_code", GraphJson::array()));
  return rules;
}

void SizeRules::check(const std::vector<at::Tensor>& inputs) const {
  if (rules.empty()) return;
  std::vector<int64_t> values;
  for (const SizeFact& fact : facts) {
    const at::Tensor& input = inputs[fact.input];
    values.push_back(fact.kind == SizeFact::Kind::kSize     ? input.size(fact.dimension)
                     : fact.kind == SizeFact::Kind::kStride ? input.stride(fact.dimension)
                                                            : input.storage_offset());
  }
  for (const Expression& rule : rules) {
    std::string reason;
    try {
      if (is_true(evaluate(rule, values))) continue;
    } catch (const c10::Error& error) {
      reason = std::string(" (") + error.what_without_backtrace() + ')';
    }
    std::set<std::string> got;
    each_name(rule, [&](const Expression& name) {
      got.insert(facts[name.slot].name + " = " + std::to_string(values[name.slot]));
    });
    throw InputError("inputs must have sizes with " +
                     text_of(rule, [&](size_t fact) { return facts[fact].name; }) + ", got " +
                     c10::Join(", ", std::vector<std::string>(got.begin(), got.end())) + reason);
  }
}

}  // namespace lensbox
