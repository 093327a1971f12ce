// Runs the golden vectors of vectors/kernels and vectors/exact on the kernel tables, without Python or any library,
// so that it also runs cross-compiled under an emulator (NUMERICS 1.8).
//
//   check_kernels [--isa NAME] [--expect-fault] GROUP.json ...
//
// Every instruction set of this build and machine is run, or the one named. Exit code: 0 all bits
// equal, 1 otherwise, 2 the set cannot run here, 3 usage. With --expect-fault (a build with a
// planted fault, see fault_check.sh) it is 0 exactly if every operator is caught.
#include <set>

#include "context.hpp"
#include "environment.hpp"

#include "adapters_attention.hpp"
#include "adapters_dot.hpp"
#include "adapters_elementwise.hpp"
#include "adapters_exact.hpp"
#include "adapters_image.hpp"
#include "adapters_nn.hpp"
#include "adapters_quantised.hpp"

using namespace vectors;

namespace {

using Run = void (*)(Case&);
using E = ElementaryTable;
using N = NnTable;

bool is_tanh(const Case& c) { return c.s("approximate") == "tanh"; }

const std::map<std::string, Run>& adapters() {
  static const std::map<std::string, Run> table = {
      {"aten.mm", run_mm}, {"aten.bmm", run_bmm}, {"aten.addmm", run_addmm},
      {"aten.convolution", run_convolution}, {"aten.convolution_backward", run_convolution_backward},
#define TS_RUN_UNARY(name) {"aten." #name, [](Case& c) { return run_unary(c, &E::name); }},
      TS_UNARY(TS_RUN_UNARY)
#undef TS_RUN_UNARY
      {"aten.pow.Tensor_Scalar", run_pow},
#define TS_EW(name) {"aten." #name, [](Case& c) { return ew_call(c, #name); }},
      TS_EW(neg) TS_EW(abs) TS_EW(reciprocal) TS_EW(sqrt) TS_EW(square) TS_EW(relu) TS_EW(silu)
      TS_EW(maximum) TS_EW(minimum) TS_EW(silu_backward) TS_EW(tanh_backward)
      TS_EW(sigmoid_backward) TS_EW(where)
#undef TS_EW
#define TS_PAIR(name)                                                         \
  {"aten." #name ".Tensor", [](Case& c) { return ew_pair(c, #name); }},      \
  {"aten." #name ".Scalar", [](Case& c) { return ew_pair(c, #name); }},
      TS_PAIR(mul) TS_PAIR(div) TS_PAIR(eq) TS_PAIR(ne) TS_PAIR(lt) TS_PAIR(le) TS_PAIR(gt)
      TS_PAIR(ge)
#undef TS_PAIR
      {"aten.add.Tensor", [](Case& c) { return run_sum_pair(c, "add", "add_alpha"); }},
      {"aten.add.Scalar", [](Case& c) { return run_sum_pair(c, "add", "add_alpha"); }},
      {"aten.sub.Tensor", [](Case& c) { return run_sum_pair(c, "sub", "sub_alpha"); }},
      {"aten.sub.Scalar", [](Case& c) { return run_sum_pair(c, "sub", "sub_alpha"); }},
      {"aten.clamp", run_clamp},
      {"aten.leaky_relu", [](Case& c) { return ew_call(c, "leaky_relu", c.f("negative_slope")); }},
      {"aten.threshold_backward",
       [](Case& c) { return ew_call(c, "threshold_backward", c.f("threshold")); }},
      {"tallystick.mask_scale", [](Case& c) { return ew_call(c, "mask_scale", c.f("scale")); }},
      {"aten.masked_fill", run_masked_fill},
      {"aten.mse_loss", run_mse},
      {"aten.mse_loss_backward", [](Case& c) {
         const bool mean = c.s("reduction") == "mean";
         return ew_call(c, mean ? "mse_loss_backward" : "mse_loss_backward_reduction",
                        static_cast<double>(c.in[1].numel()));
       }},
      {"aten.sum", [](Case& c) { return run_sum(c, false); }},
      {"aten.sum.dim_IntList", [](Case& c) { return run_sum(c, false); }},
      {"aten.mean", [](Case& c) { return run_sum(c, true); }},
      {"aten.mean.dim", [](Case& c) { return run_sum(c, true); }},
      {"aten.amax", [](Case& c) { return run_extreme(c, Extreme::max); }},
      {"aten.max", [](Case& c) { return run_extreme(c, Extreme::max); }},
      {"aten.amin", [](Case& c) { return run_extreme(c, Extreme::min); }},
      {"aten.min", [](Case& c) { return run_extreme(c, Extreme::min); }},
      {"aten.argmax", run_argmax}, {"aten.var_mean.correction", run_var_mean},
      {"tallystick.sum_squares", run_sum_squares},
      {"tallystick.dropout_mask", run_dropout}, {"tallystick.uniform", run_uniform},
      {"tallystick.normal", run_normal}, {"tallystick.gumbel", run_gumbel},
      {"aten._softmax", [](Case& c) { return run_softmax(c, &N::softmax); }},
      {"aten._log_softmax", [](Case& c) { return run_softmax(c, &N::log_softmax); }},
      {"aten._softmax_backward_data",
       [](Case& c) { return run_softmax_backward(c, &N::softmax_backward); }},
      {"aten._log_softmax_backward_data",
       [](Case& c) { return run_softmax_backward(c, &N::log_softmax_backward); }},
      {"aten.native_layer_norm", run_layer_norm},
      {"aten.native_layer_norm_backward", run_layer_norm_backward},
      {"aten._native_batch_norm_legit_functional", run_batch_norm},
      {"aten._native_batch_norm_legit_no_training", run_batch_norm_eval},
      {"aten.native_batch_norm_backward", run_batch_norm_backward},
      {"aten.max_pool2d_with_indices", run_max_pool},
      {"aten.max_pool2d_with_indices_backward", run_max_pool_backward},
      {"aten.gelu", [](Case& c) { return ew_call(c, is_tanh(c) ? "gelu_tanh" : "gelu"); }},
      {"aten.gelu_backward",
       [](Case& c) { return ew_call(c, is_tanh(c) ? "gelu_backward_tanh" : "gelu_backward"); }},
      {"tallystick.cross_entropy", run_cross_entropy},
      {"tallystick.cross_entropy_backward", run_cross_entropy_backward},
      {"aten.nll_loss_forward", run_nll}, {"aten.nll_loss_backward", run_nll_backward},
      {"tallystick.attention_scores", run_scores}, {"tallystick.attention_weights", run_weights},
      {"tallystick.attention_values", run_values}, {"tallystick.dequantize", run_dequantize},
      {"aten.embedding", run_embedding}, {"aten.embedding_dense_backward", run_embedding_backward},
      {"aten.index_add", run_index_add},
      {"tallystick.adamw_step", [](Case& c) { return run_adam(c, true); }},
      {"tallystick.adam_step", [](Case& c) { return run_adam(c, false); }},
      {"tallystick.sgd_step", run_sgd}, {"tallystick.clip_coef", run_clip_coef},
  };
  return table;
}

// The dot class of `exact/1`; its other operators are those above.
const std::map<std::string, Run>& exact_adapters() {
  static const std::map<std::string, Run> table = {
      {"aten.mm", exact_mm}, {"aten.bmm", exact_bmm}, {"aten.addmm", exact_addmm},
      {"aten.convolution", exact_convolution},
      {"aten.convolution_backward", exact_convolution_backward},
  };
  return table;
}

// Operators that numpy executes above the core: they move bits, are integer or binary64 work, or
// one addition after the other.
const std::set<std::string> kAbove = {
    "aten.view", "aten.permute", "aten.expand", "aten.slice", "aten.slice_scatter", "aten.cat",
    "aten.gather", "aten.index_select", "aten.full", "aten.arange", "aten.tril", "aten.triu",
    "aten.logical_and", "aten.logical_or", "aten.logical_not", "aten.bitwise_and.Tensor",
    "aten.bitwise_or.Tensor", "aten.bitwise_not", "aten._to_copy", "tallystick.beta_power",
    "aten.cumsum", "aten.scatter.src", "tallystick.rank", "tallystick.occurrences",
    "aten.floor_divide", "aten.bitwise_xor.Tensor", "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_right_shift.Tensor", "tallystick.fold"};

// Operators on integers are numpy's too.
bool above(const Case& c) {
  if (kAbove.count(c.op)) return true;
  const size_t data = c.op == "aten.where" ? 1 : 0;
  const std::string& dtype = c.in.at(data).dtype;
  return dtype != "f32" && c.op != "tallystick.dequantize" &&
         c.op != "tallystick.dropout_mask" && c.op != "tallystick.uniform" &&
         c.op != "tallystick.normal" && c.op != "tallystick.gumbel";
}

struct Tally {
  size_t calls = 0, wrong = 0;
  size_t missed = 0;  // calls whose bits are right although a finite binary32 is among them
};

bool gives_finite(const Case& c) {
  for (const Tensor& t : c.want)
    for (size_t i = 0; t.dtype == "f32" && i < t.numel(); ++i)
      if (t.f32()[i] - t.f32()[i] == 0.0f) return true;
  return false;
}

// One bit in any output.
bool differs(Case& c, Run run) {
  for (Tensor& t : c.got) t.reserve();
  run(c);
  for (size_t k = 0; k < c.got.size(); ++k)
    if (std::memcmp(c.got[k].room.data(), c.want[k].room.data(), c.want[k].bytes()) != 0) return true;
  return false;
}

std::map<std::string, Tally> run_all(std::vector<Case>& cases, bool quiet, const char* isa) {
  std::map<std::string, Tally> tallies;
  for (size_t i = 0; i < cases.size(); ++i) {
    Case& c = cases[i];
    if (above(c)) continue;
    const auto& wired = c.width ? exact_adapters() : adapters();
    const std::string name = c.width ? c.op + " of exact/1" : c.op;
    const auto found = wired.find(c.op);
    if (found == wired.end()) fail("no kernel is wired for " + name);
    Tally& tally = tallies[name];
    ++tally.calls;
    if (!differs(c, found->second)) {
      tally.missed += gives_finite(c);
      if (quiet && gives_finite(c)) std::printf("%s: call %zu, %s: fault not seen\n", isa, i, name.c_str());
      continue;
    }
    ++tally.wrong;
    if (!quiet) std::printf("%s: call %zu, %s: other bits\n", isa, i, name.c_str());
  }
  return tallies;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Case> cases;
  const char* only = nullptr;
  bool expect_fault = false;
  for (int a = 1; a < argc; ++a) {
    const std::string arg = argv[a];
    if (arg == "--isa" && a + 1 < argc) only = argv[++a];
    else if (arg == "--expect-fault") expect_fault = true;
    else
      for (Case& c : load(arg)) cases.push_back(c);
  }
  Isa wanted = Isa::scalar;
  if (cases.empty() || (only && !isa_from_name(only, &wanted))) {
    std::fprintf(stderr, "usage: check_kernels [--isa NAME] [--expect-fault] GROUP.json ...\n");
    return 3;
  }
  if (only && !isa_supported(wanted)) {
    std::fprintf(stderr, "this machine or build cannot run %s\n", only);
    return 2;
  }
  fp_environment_enter();
  bool good = true;
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::neon}) {
    if (only ? isa != wanted : !isa_supported(isa)) continue;
    default_context().set_isa(isa);
    size_t calls = 0, wrong = 0, caught = 0, missed = 0;
    const auto tallies = run_all(cases, expect_fault, isa_name(isa));
    for (const auto& [op, tally] : tallies) {
      calls += tally.calls;
      wrong += tally.wrong;
      caught += tally.wrong != 0;
      missed += tally.missed;
      if (expect_fault && tally.wrong == 0) std::printf("%s: fault not seen in %s\n", isa_name(isa), op.c_str());
    }
    std::printf("%s: %zu calls of %zu operators, %zu calls of %zu operators wrong\n", isa_name(isa),
                calls, tallies.size(), wrong, caught);
    if (expect_fault) std::printf("%s: %zu calls with finite results not caught\n", isa_name(isa), missed);
    good = good && (expect_fault ? caught == tallies.size() : wrong == 0);
  }
  return good ? 0 : 1;
}
