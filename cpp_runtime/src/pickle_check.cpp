#include "pickle_check.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "identifier.h"
#include "utf8.h"

namespace lensbox {
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxTypeBrackets = 16;
constexpr size_t kMaxTypeLength = 4096;

struct PickleError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(const std::string& reason) {
  throw PickleError(reason);
}

enum class Kind {
  kMark,
  kNone,
  kBool,
  kInteger,
  kFloat,
  kText,
  kTuple,
  kList,
  kDict,
  kGlobal,
  kStorage,
  kTensor,
  kNew,
  kObject
};

struct Value;
using Values = std::vector<std::shared_ptr<Value>>;

// What stands on the unpickler's stack.
struct Value {
  Kind kind;
  int64_t number = 0;             // of an integer; of a storage, how many items it has
  std::string text{};             // of a text; of a global, its module and name
  Values items{};                 // of a tuple
  int depth = 0;                  // how deep tensors, tuples, lists, dicts and objects lie within each other
  bool is_growing = false;        // whether a list or dict may still get items
  std::optional<bool> is_data{};  // of a tuple, once it has been asked
};
using Pointer = std::shared_ptr<Value>;

Pointer make(Value value) {
  return std::make_shared<Value>(std::move(value));
}

// Whether it may be part of a value, that is, no mark, name or storage.
bool is_data(const Pointer& value) {
  switch (value->kind) {
    case Kind::kMark:
    case Kind::kGlobal:
    case Kind::kStorage:
    case Kind::kNew:
      return false;
    case Kind::kTuple:
      // Kept, since tuples that share their items would take time exponential in their depth.
      if (!value->is_data) value->is_data = std::ranges::all_of(value->items, is_data);
      return *value->is_data;
    default:
      return true;
  }
}

void require_data(const Values& values) {
  if (!std::ranges::all_of(values, is_data)) fail("it has a name, a mark or a storage where a value must be");
}

// Of what holds these values, which may not change any more.
int depth_above(const Values& values) {
  int depth = 1;
  for (const Pointer& value : values) {
    value->is_growing = false;
    depth = std::max(depth, value->depth + 1);
  }
  if (depth > kMaxDepth) fail("it is nested more than " + std::to_string(kMaxDepth) + " levels deep");
  return depth;
}

bool have_kinds(const Values& values, std::initializer_list<Kind> kinds) {
  return std::ranges::equal(values, kinds, {}, [](const Pointer& value) { return value->kind; });
}

// Of the items of a storage, in bytes; 0 for another name.
int64_t item_size(std::string_view global) {
  constexpr std::pair<std::string_view, int64_t> kSizes[] = {
      {"torch BoolStorage", 1},   {"torch ByteStorage", 1},         {"torch CharStorage", 1},
      {"torch ShortStorage", 2},  {"torch HalfStorage", 2},         {"torch BFloat16Storage", 2},
      {"torch IntStorage", 4},    {"torch FloatStorage", 4},        {"torch LongStorage", 8},
      {"torch DoubleStorage", 8}, {"torch ComplexFloatStorage", 8}, {"torch ComplexDoubleStorage", 16},
  };
  const auto found = std::ranges::find(kSizes, global, &std::pair<std::string_view, int64_t>::first);
  return found == std::end(kSizes) ? 0 : found->second;
}

// Whether it names a class of the artifact's own code: "__torch__.a.b Name". Classes of C++ restore
// themselves by what a pickle says.
bool is_class(std::string_view global) {
  const size_t blank = global.find(' ');
  if (blank == std::string_view::npos || global.starts_with("__torch__.torch.classes")) return false;
  const std::string_view module_name = global.substr(0, blank), name = global.substr(blank + 1);
  const auto is_word_or_dot = [](char c) { return continues_identifier(c) || c == '.'; };
  return (module_name == "__torch__" || module_name.starts_with("__torch__.")) &&
         std::ranges::all_of(module_name, is_word_or_dot) && !module_name.ends_with('.') &&
         module_name.find("..") == std::string_view::npos && !name.empty() &&
         std::ranges::all_of(name, continues_identifier);
}

// (storage, offset, sizes, strides, requires_grad, hooks)
Pointer rebuild_tensor(const Values& arguments) {
  if (!have_kinds(arguments,
                  {Kind::kStorage, Kind::kInteger, Kind::kTuple, Kind::kTuple, Kind::kBool, Kind::kDict})) {
    fail("it has a tensor that is not described as torch does");
  }
  const Values& sizes = arguments[2]->items;
  const Values& strides = arguments[3]->items;
  const auto is_count = [](const Pointer& value) {
    return value->kind == Kind::kInteger && value->number >= 0;
  };
  if (!is_count(arguments[1]) || sizes.size() != strides.size() || sizes.size() > size_t{kMaxDepth} ||
      !std::ranges::all_of(sizes, is_count) || !std::ranges::all_of(strides, is_count)) {
    fail("it has a tensor with sizes or strides that none can have");
  }
  if (std::ranges::any_of(sizes, [](const Pointer& size) { return size->number == 0; }))
    return make({.kind = Kind::kTensor, .depth = 1});
  const int64_t count = arguments[0]->number;
  int64_t last = arguments[1]->number;
  for (size_t i = 0; i < sizes.size() && last < count; ++i) {
    const int64_t steps = sizes[i]->number - 1;
    const int64_t stride = strides[i]->number;
    // Written without products that overflow.
    last = stride != 0 && steps > (count - last) / stride ? count : last + steps * stride;
  }
  if (last >= count) fail("it has a tensor that does not lie inside its storage of " + std::to_string(count));
  return make({.kind = Kind::kTensor, .depth = 1});
}

Pointer restore_type_tag(const Values& arguments) {
  if (arguments.size() != 2 || arguments[1]->kind != Kind::kText) fail("it has a type that is no text");
  const std::string& type = arguments[1]->text;
  const auto may_be_in_type = [](char c) {
    return continues_identifier(c) || std::string_view(".,[]() ").find(c) != std::string_view::npos;
  };
  const auto brackets = std::ranges::count(type, '[') + std::ranges::count(type, '(');
  // torch's parser calls itself for each bracket.
  if (type.empty() || type.size() > kMaxTypeLength || brackets > kMaxTypeBrackets ||
      !std::ranges::all_of(type, may_be_in_type)) {
    fail("it has the type '" + type.substr(0, 100) + "'");
  }
  require_data({arguments[0]});
  return arguments[0];
}

Pointer build_list(const Values& arguments) {
  if (!have_kinds(arguments, {Kind::kList})) fail("it has a list that is none");
  return make({.kind = Kind::kList, .depth = depth_above(arguments)});
}

Pointer ordered_dict(const Values& arguments) {
  if (!arguments.empty()) fail("it has a dict that is not empty where torch writes an empty one");
  return make({.kind = Kind::kDict, .depth = 1});
}

Pointer device(const Values& arguments) {
  if (!have_kinds(arguments, {Kind::kText}) && !have_kinds(arguments, {Kind::kText, Kind::kInteger})) {
    fail("it has a device that is none");
  }
  return make({.kind = Kind::kObject, .depth = 1});
}

Pointer object_of(const Pointer& state) {
  require_data({state});
  return make({.kind = Kind::kObject, .depth = depth_above({state})});
}

using Function = Pointer (*)(const Values&);

// nullptr for what must not be called.
Function function_of(std::string_view global) {
  constexpr std::pair<std::string_view, Function> kFunctions[] = {
      {"torch._utils _rebuild_tensor_v2", rebuild_tensor},
      {"collections OrderedDict", ordered_dict},
      {"torch device", device},
      {"torch.jit._pickle restore_type_tag", restore_type_tag},
      {"torch.jit._pickle build_intlist", build_list},
      {"torch.jit._pickle build_doublelist", build_list},
      {"torch.jit._pickle build_boollist", build_list},
      {"torch.jit._pickle build_tensorlist", build_list},
  };
  const auto found = std::ranges::find(kFunctions, global, &std::pair<std::string_view, Function>::first);
  return found == std::end(kFunctions) ? nullptr : found->second;
}

// Opcodes and their arguments.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::string_view take(size_t size) {
    if (size > bytes_.size() - position_) fail("it is cut off");
    position_ += size;
    return bytes_.substr(position_ - size, size);
  }

  // Little-endian, without sign.
  int64_t number(size_t size) {
    const std::string_view taken = take(size);
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(taken[i]);
    }
    return static_cast<int64_t>(value);
  }

  int64_t signed_number(size_t size) {
    if (size > 8) fail("it has an integer of more than 64 bits");
    if (size == 0) return 0;
    const auto unused_bits = static_cast<int>(64 - 8 * size);
    return static_cast<int64_t>(static_cast<uint64_t>(number(size)) << unused_bits) >> unused_bits;
  }

  std::string_view line() {
    const size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) fail("it is cut off");
    const std::string_view text = take(end - position_);
    ++position_;
    return text;
  }

  bool at_end() const { return position_ == bytes_.size(); }

 private:
  std::string_view bytes_;
  size_t position_ = 0;
};

// The stack and the memo of an unpickler that builds descriptions.
class Walker {
 public:
  Walker(std::string_view pickle, const std::string& folder, const RecordSize& record_size)
      : reader_(pickle), folder_(folder), record_size_(record_size) {}

  void walk() {
    for (;;) {
      const auto opcode = static_cast<unsigned char>(reader_.take(1)[0]);
      if (opcode == '.') break;
      step(opcode);
    }
    require_data(stack_);
    if (stack_.size() != 1) fail("its stack is not empty at its end");
    if (!reader_.at_end()) fail("bytes follow its end");
  }

 private:
  // clang-format off
  void step(unsigned char opcode) {
    switch (opcode) {
      case 0x80: reader_.take(1); break;                                                // PROTO
      case '(': push({Kind::kMark}); break;                                             // MARK
      case 'N': push({Kind::kNone}); break;                                             // NONE
      case 0x88: case 0x89: push({Kind::kBool}); break;                                 // NEWTRUE, NEWFALSE
      case 'J': push({Kind::kInteger, reader_.signed_number(4)}); break;                // BININT
      case 'K': push({Kind::kInteger, reader_.number(1)}); break;                       // BININT1
      case 'M': push({Kind::kInteger, reader_.number(2)}); break;                       // BININT2
      case 0x8a: push({Kind::kInteger, reader_.signed_number(reader_.number(1))}); break;  // LONG1
      case 'G': reader_.take(8); push({Kind::kFloat}); break;                           // BINFLOAT
      case 'X': push_text(); break;                                                     // BINUNICODE
      case ')': push({.kind = Kind::kTuple, .depth = 1}); break;                        // EMPTY_TUPLE
      case ']': push({.kind = Kind::kList, .depth = 1, .is_growing = true}); break;     // EMPTY_LIST
      case '}': push({.kind = Kind::kDict, .depth = 1, .is_growing = true}); break;     // EMPTY_DICT
      case 't': push_tuple(pop_to_mark()); break;                                       // TUPLE
      case 0x85: case 0x86: case 0x87: push_tuple(pop(opcode - 0x84)); break;           // TUPLE1 to TUPLE3
      case 'a': extend(Kind::kList, pop(1)); break;                                     // APPEND
      case 'e': extend(Kind::kList, pop_to_mark()); break;                              // APPENDS
      case 's': extend(Kind::kDict, pop(2)); break;                                     // SETITEM
      case 'u': extend(Kind::kDict, pop_to_mark()); break;                              // SETITEMS
      case 'q': memoize(reader_.number(1)); break;                                      // BINPUT
      case 'r': memoize(reader_.number(4)); break;                                      // LONG_BINPUT
      case 'h': remember(reader_.number(1)); break;                                     // BINGET
      case 'j': remember(reader_.number(4)); break;                                     // LONG_BINGET
      case 'c': push_global(); break;                                                   // GLOBAL
      case 0x81: make_object(); break;                                                  // NEWOBJ
      case 'b': give_state(); break;                                                    // BUILD
      case 'Q': refer_to_storage(); break;                                              // BINPERSID
      case 'R': call(); break;                                                          // REDUCE
      default: fail("it uses the opcode " + std::to_string(opcode) + ", which torch does not write");
    }
  }
  // clang-format on

  void push(Value value) { stack_.push_back(make(std::move(value))); }

  Values pop(size_t count) {
    const auto is_mark = [](const Pointer& value) { return value->kind == Kind::kMark; };
    if (stack_.size() < count ||
        std::any_of(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end(), is_mark)) {
      fail("its stack is empty too early");
    }
    return take_from(stack_.size() - count);
  }

  Values pop_to_mark() {
    for (size_t index = stack_.size(); index-- > 0;) {
      if (stack_[index]->kind != Kind::kMark) continue;
      Values values = take_from(index + 1);
      stack_.pop_back();
      return values;
    }
    fail("its stack is empty too early");
  }

  Values take_from(size_t index) {
    const auto begin = stack_.begin() + static_cast<ptrdiff_t>(index);
    Values values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    return values;
  }

  void push_text() {
    const auto size = static_cast<size_t>(reader_.number(4));
    const std::string_view text = reader_.take(size);
    if (!is_utf8(text)) fail("it has a text that is not UTF-8");
    push({.kind = Kind::kText, .text = std::string(text)});
  }

  void push_tuple(Values items) {
    const int depth = depth_above(items);
    push({.kind = Kind::kTuple, .items = std::move(items), .depth = depth});
  }

  void push_global() {
    std::string name(reader_.line());
    name += ' ';
    name += reader_.line();
    if (!function_of(name) && item_size(name) == 0 && !is_class(name)) {
      fail("it names '" + name.substr(0, 100) + "', which torch does not write for a detector");
    }
    push({.kind = Kind::kGlobal, .text = std::move(name)});
  }

  void extend(Kind kind, const Values& values) {
    const Pointer target = pop(1)[0];
    if (target->kind != kind || !target->is_growing) fail("it adds items to what is no new list or dict");
    if (kind == Kind::kDict && values.size() % 2 != 0) fail("a dict has a key without a value");
    require_data(values);
    target->depth = std::max(target->depth, depth_above(values));
    stack_.push_back(target);
  }

  // torch counts up, and its unpickler makes room for any index.
  void memoize(int64_t index) {
    const auto count = static_cast<int64_t>(memo_.size());
    if (index > count || stack_.empty() || stack_.back()->kind == Kind::kMark)
      fail("it remembers what is not there");
    if (index == count) memo_.emplace_back();
    memo_[static_cast<size_t>(index)] = stack_.back();
  }

  void remember(int64_t index) {
    if (index >= static_cast<int64_t>(memo_.size())) fail("it refers to what is not there");
    stack_.push_back(memo_[static_cast<size_t>(index)]);
    stack_.back()->is_growing = false;
  }

  void make_object() {
    const Values values = pop(2);  // class, arguments
    if (values[0]->kind != Kind::kGlobal || !is_class(values[0]->text) || values[1]->kind != Kind::kTuple ||
        !values[1]->items.empty()) {
      fail("it makes an object of what is no class");
    }
    push({.kind = Kind::kNew, .depth = 1});
  }

  void give_state() {
    const Values values = pop(2);  // object, state
    if (values[0]->kind != Kind::kNew) fail("it gives a state to what is no new object");
    stack_.push_back(object_of(values[1]));
  }

  // ("storage", type, record, device, number of items)
  void refer_to_storage() {
    const Pointer reference = pop(1)[0];
    const Values& parts = reference->items;
    if (!have_kinds(parts, {Kind::kText, Kind::kGlobal, Kind::kText, Kind::kText, Kind::kInteger}) ||
        parts[0]->text != "storage" || item_size(parts[1]->text) == 0) {
      fail("it refers to something other than a storage of numbers");
    }
    const std::string record = folder_ + "/" + parts[2]->text;
    const std::optional<uint64_t> size = record_size_(record);
    if (!size) fail("its tensors need the entry " + record + ", which is not there");
    const int64_t count = parts[4]->number;
    const int64_t item = item_size(parts[1]->text);
    if (count < 0 || static_cast<uint64_t>(count) > *size / static_cast<uint64_t>(item)) {
      fail("the entry " + record + " must hold " + std::to_string(count) + " numbers of " +
           std::to_string(item) + " bytes, got " + std::to_string(*size) + " bytes");
    }
    push({Kind::kStorage, count});
  }

  void call() {
    const Values values = pop(2);  // function, arguments
    if (values[0]->kind == Kind::kGlobal && is_class(values[0]->text)) {
      stack_.push_back(object_of(values[1]));  // an enumeration, and a value of it
      return;
    }
    if (values[0]->kind != Kind::kGlobal || values[1]->kind != Kind::kTuple)
      fail("it calls what is no function");
    const Function function = function_of(values[0]->text);
    if (!function) fail("it calls '" + values[0]->text + "'");
    stack_.push_back(function(values[1]->items));
  }

  Reader reader_;
  const std::string& folder_;
  const RecordSize& record_size_;
  Values stack_;
  Values memo_;
};

}  // namespace

std::optional<std::string> pickle_fault(std::string_view pickle, const std::string& folder,
                                        const RecordSize& record_size) {
  try {
    Walker(pickle, folder, record_size).walk();
  } catch (const PickleError& error) {
    return error.what();
  }
  return std::nullopt;
}

}  // namespace lensbox
