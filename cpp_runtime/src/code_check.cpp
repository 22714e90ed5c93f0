#include "code_check.h"

#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <set>

#include "code_tokens.h"
#include "op_names.h"  // made by CMake
#include "op_schema.h"

namespace lensbox {
namespace {

using Fault = std::optional<std::string>;
using Names = std::set<std::string_view>;

bool is_allowed(const std::string& op) {
  return std::ranges::binary_search(kAllowedOps, std::string_view(op));
}

bool may_call(std::string_view name_space, std::string_view name, const Names& declared) {
  const std::string op = std::string(name_space) + "::" + std::string(name);
  if (name == "autograd") return false;  // a second name of torch itself
  if (std::ranges::binary_search(kTorchNamespaces, name_space)) return is_allowed(op);
  return name_space == "lensbox" || declared.contains(op);
}

// TorchScript reaches ops in four ways: torch.NAME, ops.NAMESPACE.NAME, value.NAME(...), where any op can be
// called like a method, and getattr(value, "NAME"). They and __torch__ may not be used in another form, since
// `t = torch` would give them another name.
class Check {
 public:
  Check(const std::vector<CodeToken>& tokens, const Names& declared) : tokens_(tokens), declared_(declared) {}

  // Of the name at `index`.
  Fault fault_at(size_t index) const {
    const std::string_view name = text(index);
    if (name == "getattr") {
      if (const Fault fault = getattr_fault(index)) return fault;
    }
    if (index > 0 && text(index - 1) == ".") return attribute_fault(name);
    if (name == "fork" || name == "awaitable") return "it uses " + std::string(name);
    if (name == "torch") return torch_fault(index);
    if (name == "ops") return ops_fault(index);
    if (name == "__torch__") return class_fault(index);
    return std::nullopt;
  }

 private:
  std::string_view text(size_t index) const {
    return index < tokens_.size() ? tokens_[index].text : std::string_view();
  }

  bool is_name(size_t index) const { return index < tokens_.size() && tokens_[index].is_name(); }

  static Fault attribute_fault(std::string_view name) {
    const std::string op = "aten::" + std::string(name);
    if (is_allowed(op) || torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(op)).empty()) {
      return std::nullopt;
    }
    return "it uses ." + std::string(name) + ", which may call torch." + std::string(name);
  }

  Fault torch_fault(size_t index) const {
    if (text(index + 1) != "." || !is_name(index + 2)) return "it uses torch other than as torch.NAME";
    const std::string name(text(index + 2));
    if (is_allowed("aten::" + name)) return std::nullopt;
    return "it uses torch." + name;
  }

  Fault ops_fault(size_t index) const {
    if (text(index + 1) != "." || text(index + 3) != "." || !is_name(index + 4)) {
      return "it uses ops other than as ops.NAMESPACE.NAME";
    }
    const std::string_view name_space = text(index + 2);
    const std::string_view name = text(index + 4);
    if (may_call(name_space, name, declared_)) return std::nullopt;
    return "it uses ops." + std::string(name_space) + "." + std::string(name);
  }

  // Classes and functions of the file are __torch__.PATH; C++ classes are __torch__.torch.classes.PATH.
  Fault class_fault(size_t index) const {
    const bool is_torch = text(index + 2) == "torch";
    if (text(index + 1) != "." || (is_torch && text(index + 3) != ".")) {
      return "it uses __torch__ other than as the start of a name";
    }
    if (is_torch && text(index + 4) == "classes") {
      return "it uses __torch__.torch.classes, torch's own C++ classes";
    }
    return std::nullopt;
  }

  // torch writes getattr(value, "0") for attributes whose name is no identifier.
  Fault getattr_fault(size_t index) const {
    constexpr const char* kForm = "it uses getattr other than as getattr(value, \"NAME\")";
    if (text(index + 1) != "(") return kForm;
    const size_t end = closing_bracket(index + 1);
    if (end == tokens_.size()) return kForm;
    const std::string_view name = text(end - 1);
    if (text(end - 2) != "," || !name.starts_with('"') || name.find('\\') != std::string_view::npos)
      return kForm;
    return attribute_fault(name.substr(1, name.size() - 2));
  }

  // Of the bracket at `begin`; behind the last token where there is none.
  size_t closing_bracket(size_t begin) const {
    int depth = 0;
    size_t end = begin;
    for (; end < tokens_.size(); ++end) {
      const std::string_view word = text(end);
      if (word == "(" || word == "[" || word == "{") ++depth;
      if (word == ")" || word == "]" || word == "}") --depth;
      if (depth == 0) break;
    }
    return end;
  }

  const std::vector<CodeToken>& tokens_;
  const Names& declared_;
};

}  // namespace

Fault code_fault(std::string_view source, const std::vector<std::string>& declared_ops) {
  Names declared;
  for (const std::string& schema : declared_ops) {
    declared.insert(op_name(schema));
  }
  try {
    const std::vector<CodeToken> tokens = split_code(source);
    const Check check(tokens, declared);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!tokens[i].is_name()) continue;
      if (const Fault fault = check.fault_at(i))
        return "line " + std::to_string(tokens[i].line) + ": " + *fault;
    }
  } catch (const CodeError& error) {
    return "line " + std::to_string(error.line) + ": " + error.what();
  }
  return std::nullopt;
}

}  // namespace lensbox
