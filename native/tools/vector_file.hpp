// Reads vectors/kernels and vectors/exact (see their README.md) without any library: a parser for the JSON that the
// generator writes, and tensors over the data file.
#pragma once
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace vectors {

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(3);
}

// For what is false only where memory could not be had.
inline void done(bool ok) {
  if (!ok) fail("out of memory");
}

struct Json {
  enum Kind { null, boolean, number, text, list, object } kind = null;
  int64_t i = 0;
  std::string s;
  std::vector<Json> items;
  std::map<std::string, Json> fields;

  const Json& at(const std::string& name) const {
    const auto found = fields.find(name);
    if (found == fields.end()) fail("a field is missing: " + name);
    return found->second;
  }
  bool has(const std::string& name) const { return fields.count(name) != 0; }
};

class Parser {
 public:
  explicit Parser(const std::string& text) : p_(text.c_str()), end_(p_ + text.size()) {}
  Json value() {
    Json v;
    const char c = peek();
    if (c == '{') {
      v.kind = Json::object;
      each('}', [&] {
        const std::string name = string();
        expect(':');
        v.fields[name] = value();
      });
    } else if (c == '[') {
      v.kind = Json::list;
      each(']', [&] { v.items.push_back(value()); });
    } else if (c == '"') {
      v.kind = Json::text;
      v.s = string();
    } else if (c == 't' || c == 'f') {
      v.kind = Json::boolean;
      v.i = c == 't';
      word(c == 't' ? "true" : "false");
    } else if (c == 'n') {
      word("null");
    } else {
      v.kind = Json::number;
      char* after = nullptr;
      v.i = std::strtoll(p_, &after, 10);
      if (after == p_) fail("malformed index");
      p_ = after;
    }
    return v;
  }

 private:
  const char *p_, *end_;

  char peek() {
    while (p_ < end_ && std::isspace(static_cast<unsigned char>(*p_))) ++p_;
    if (p_ >= end_) fail("the index ends early");
    return *p_;
  }
  void expect(char c) {
    if (peek() != c) fail("malformed index");
    ++p_;
  }
  void word(const char* w) {
    const size_t n = std::strlen(w);
    if (static_cast<size_t>(end_ - p_) < n || std::strncmp(p_, w, n) != 0) fail("malformed index");
    p_ += n;
  }
  std::string string() {
    expect('"');
    std::string s;
    for (; p_ < end_ && *p_ != '"'; ++p_) s += *p_;  // the generator writes no escapes
    expect('"');
    return s;
  }
  template <class F>
  void each(char close, const F& element) {
    ++p_;
    if (peek() == close) {
      ++p_;
      return;
    }
    for (;; expect(',')) {
      element();
      if (peek() == close) break;
    }
    ++p_;
  }
};

inline size_t width_of(const std::string& dtype) {
  if (dtype == "bf16" || dtype == "f16") return 2;
  return dtype == "f64" || dtype == "i64" ? 8 : dtype == "u8" || dtype == "bool" ? 1 : 4;
}

struct Tensor {
  bool present = false;
  std::string dtype;
  std::vector<size_t> shape;
  std::vector<uint64_t> room;  // aligned storage, never empty

  size_t numel() const {
    size_t n = 1;
    for (size_t s : shape) n *= s;
    return n;
  }
  size_t bytes() const { return numel() * width_of(dtype); }
  void reserve() { room.assign(bytes() / 8 + 1, 0xa5a5a5a5a5a5a5a5ull); }
  template <class T>
  T* as() { return reinterpret_cast<T*>(room.data()); }
  template <class T>
  const T* as() const { return reinterpret_cast<const T*>(room.data()); }
  const float* f32() const { return present ? as<float>() : nullptr; }
  float* f32() { return present ? as<float>() : nullptr; }
};

struct Case {
  std::string op;
  int width = 0;  // B of `exact/1` (NUMERICS 17.1); 0 under `ordered/1`
  Json attrs;
  std::vector<Tensor> in, want, got;

  double f(const char* name) const { return std::strtod(attrs.at(name).s.c_str(), nullptr); }
  int64_t i(const char* name) const { return attrs.at(name).i; }
  bool flag(const char* name) const { return attrs.at(name).i != 0; }
  const std::string& s(const char* name) const { return attrs.at(name).s; }
  std::vector<int64_t> list(const char* name) const {
    std::vector<int64_t> out;
    for (const Json& v : attrs.at(name).items) out.push_back(v.i);
    return out;
  }
  // Two numbers, or one number for both axes (NUMERICS 2.6).
  std::vector<int64_t> pair(const char* name) const {
    std::vector<int64_t> out = list(name);
    if (out.size() == 1) out.push_back(out[0]);
    return out;
  }
  // An axis of operand `k`, counted from the front.
  size_t axis(const char* name, size_t k) const {
    const int64_t given = i(name), rank = static_cast<int64_t>(in[k].shape.size());
    return static_cast<size_t>(given < 0 ? given + rank : given);
  }
  const Tensor& input(size_t k) const {
    static const Tensor absent;
    return k < in.size() ? in[k] : absent;
  }
  // The gradients that `output_mask` asks for, in its order; null for the others.
  std::vector<float*> wanted() {
    std::vector<float*> out;
    size_t at = 0;
    for (int64_t on : list("output_mask")) out.push_back(on ? got[at++].f32() : nullptr);
    return out;
  }
};

inline std::string slurp(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) fail("cannot read " + path);
  std::string all;
  char part[65536];
  for (size_t n; (n = std::fread(part, 1, sizeof part, file)) > 0;) all.append(part, n);
  std::fclose(file);
  return all;
}

inline Tensor tensor_of(const Json& place, const std::string& data) {
  Tensor t;
  if (place.kind == Json::null) return t;
  t.present = true;
  t.dtype = place.items.at(0).s;
  for (const Json& n : place.items.at(1).items) t.shape.push_back(static_cast<size_t>(n.i));
  t.reserve();
  const size_t offset = static_cast<size_t>(place.items.at(2).i);
  if (offset > data.size() || t.bytes() > data.size() - offset) fail("a tensor exceeds its file");
  std::memcpy(t.room.data(), data.data() + offset, t.bytes());
  return t;
}

inline int width_of_contract(const std::string& contract) {
  const std::string exact = "exact/1-draft.1;b=";
  if (contract == "ordered/1-draft.1") return 0;
  if (contract.compare(0, exact.size(), exact) != 0) fail("no kernels for contract " + contract);
  return std::atoi(contract.c_str() + exact.size());
}

// The cases of DIR/GROUP.json, given by that path.
inline std::vector<Case> load(const std::string& path) {
  const std::string text = slurp(path);
  const Json index = Parser(text).value();
  if (index.at("format").s != "tallystick-kernel-vectors/1") fail("another format: " + path);
  const size_t slash = path.rfind('/');
  const std::string dir = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  const std::string data = slurp(dir + index.at("data").s);
  const int width = width_of_contract(index.at("contract").s);
  std::vector<Case> cases;
  for (const Json& entry : index.at("cases").items) {
    Case c;
    c.op = entry.at("op").s;
    c.width = width;
    c.attrs = entry.at("attrs");
    for (const Json& place : entry.at("inputs").items) c.in.push_back(tensor_of(place, data));
    for (const Json& place : entry.at("outputs").items) c.want.push_back(tensor_of(place, data));
    c.got = c.want;
    cases.push_back(c);
  }
  return cases;
}

}  // namespace vectors
