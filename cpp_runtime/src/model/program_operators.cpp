#include "model/program_operators.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "model/op_library.h"

namespace lensbox {
namespace {

constexpr const char* kTable =
#include "program_operators.inc"
    ;

// The words of the table by operator, and the namespaces about which the table alone decides.
struct Table {
  std::map<std::string, std::vector<std::string>> words;
  std::set<std::string> namespaces;
};

const Table& table() {
  static const Table kRead = [] {
    Table read;
    std::istringstream text(kTable);
    for (std::string line; std::getline(text, line);) {
      std::istringstream words(line.starts_with('#') ? "" : line);
      for (std::string word; words >> word;) {
        const std::string name = word.substr(0, std::min(word.find('('), word.find("->")));
        read.words[name].push_back(word);
        if (const size_t end = name.find("::"); end != std::string::npos)
          read.namespaces.insert(name.substr(0, end));
      }
    }
    return read;
  }();
  return kRead;
}

c10::OperatorName name_of(const std::string& word) {
  const size_t point = word.find('.');
  return {word.substr(0, point), point == std::string::npos ? "" : word.substr(point + 1)};
}

// Return whether an argument obeys a part of a rule, such as "training=False" or "stride<=1024".
bool obeys(const c10::IValue& value, const std::string& relation, const std::string& wanted) {
  if (wanted == "None") return value.isNone();
  if (wanted == "False") return value.isBool() && !value.toBool();
  if (relation == "=") return value.isScalar() && value.toScalar().toDouble() == std::stod(wanted);
  const auto is_small = [&](const c10::IValue& number) {
    return number.isInt() && number.toInt() <= std::stoll(wanted);
  };
  if (!value.isList()) return is_small(value);
  const auto numbers = value.toListRef();
  return std::all_of(numbers.begin(), numbers.end(), is_small);
}

// --- what torch does not check, and would read beyond tensors ---

void require_rows(const std::vector<c10::IValue>& arguments) {
  const at::Tensor &key = arguments[1].toTensor(), &value = arguments[2].toTensor();
  TORCH_CHECK(key.dim() >= 2 && value.dim() >= 2 && key.size(-2) == value.size(-2),
              "keys and values of attention must have the same rows, got ", key.sizes(), " and ",
              value.sizes());
}

void require_channels(const std::vector<c10::IValue>& arguments) {
  const at::Tensor& images = arguments[0].toTensor();
  for (size_t i = 1; i < 5; ++i) {  // weight, bias, mean and variance
    const auto values = arguments[i].toOptional<at::Tensor>();
    TORCH_CHECK(
        images.dim() >= 2 && (!values || !values->defined() || values->sizes() == images.sizes().slice(1, 1)),
        "parameters of a batch norm must have one number for each channel");
  }
}

const std::map<std::string, OperatorGuard>& guards() {
  static const std::map<std::string, OperatorGuard> kGuards{
      {"aten::scaled_dot_product_attention", require_rows},
      {"aten::_native_batch_norm_legit_no_training", require_channels}};
  return kGuards;
}

}  // namespace

void ProgramOperator::check(const std::vector<c10::IValue>& arguments,
                            const std::vector<bool>& is_known) const {
  const auto part_holds = [&](const std::string& part) {
    const size_t name = part.find_first_of("<="), value = part.find('=') + 1;
    const auto position = op.schema().argumentIndexWithName(part.substr(0, name));
    return position && is_known[*position] &&
           obeys(arguments[*position], part.substr(name, value - name), part.substr(value));
  };
  const auto holds = [&](const std::string& rule) {
    std::istringstream parts(rule);
    for (std::string part; std::getline(parts, part, ',');) {
      if (!part_holds(part)) return false;
    }
    return true;
  };
  if (!rules.empty() && std::ranges::none_of(rules, holds))
    throw std::runtime_error("a program must not call it but with " + c10::Join(" or ", rules));
}

ProgramOperator find_operator(const c10::OperatorName& name) {
  const std::string text = c10::toString(name);
  const auto found = table().words.find(text);
  const bool is_listed = found != table().words.end();
  if (!is_listed && table().namespaces.contains(name.name.substr(0, name.name.find("::"))))
    throw std::runtime_error("a program must not call " + text +
                             ": docs/programs.md says which operators it may");
  if (!is_listed && !is_of_named_library(name.name))
    throw std::runtime_error("a program must not call " + text +
                             ", as no library that you named holds it: name its library with --ops FILE "
                             "(ProgramOptions::op_libraries)");
  c10::OperatorName called = name;
  std::vector<std::string> rules;
  for (const std::string& word : is_listed ? found->second : std::vector<std::string>()) {
    if (const size_t arrow = word.find("->"); arrow != std::string::npos)
      called = name_of(word.substr(arrow + 2));
    if (const size_t open = word.find('('); open != std::string::npos)
      rules.push_back(word.substr(open + 1, word.size() - open - 2));
  }
  const auto op = c10::Dispatcher::singleton().findSchema(called);
  if (!op) throw std::runtime_error("the op " + c10::toString(called) + " is not registered");
  const auto guard = guards().find(text);
  return {*op, rules, guard == guards().end() ? nullptr : guard->second};
}

bool has_calculation(const std::string& target) {
  return table().words.contains(target);
}

}  // namespace lensbox
