#include "shared/memory/rank_ledger.h"

#include <array>
#include <span>

#include <fmt/format.h>

namespace plimsoll {
namespace {

constexpr std::array<Term, 8> kCpuOrder = {Term::weights,   Term::tables, Term::activations,
                                           Term::workspace, Term::logits, Term::collective,
                                           Term::process,   Term::graphs};
constexpr std::array<Term, 14> kDeviceOrder = {
    Term::context,   Term::collective, Term::weights,   Term::absorbed,    Term::vision,
    Term::draft,     Term::tables,     Term::workspace, Term::activations, Term::logits,
    Term::ep_buffer, Term::graphs,     Term::process,   Term::margin};

TermInputs cpu_inputs(const FitInputs& in, const RankShape& rank, const StepShape& step) {
  return {.model = *in.model, .rank = rank, .step = step, .tp = in.tp};
}
DeviceTermInputs device_inputs(const FitInputs& in, const RankShape& rank, const StepShape& step) {
  return {.model = *in.model, .rank = rank, .step = step, .setting = in.setting};
}

// What was learned of a process on the CPU is a lower bound: others share its pages of libraries.
bool replaces(const FitInputs& in, const Override& figure, Bytes computed) {
  const bool is_bound = !in.on_devices && figure.trust == Trust::learned;
  return !is_bound || figure.bytes >= computed;
}

const Override* override_of(const FitInputs& in, const StepShape& step, Term term, Bytes bytes) {
  for (const Override& figure : in.overrides) {
    if (figure.term == term && figure.holds(step) && replaces(in, figure, bytes)) return &figure;
  }
  return nullptr;
}

PlanRow make_row(const FitInputs& in, const RankShape& rank, const StepShape& step, Term term,
                 Bytes bytes) {
  if (const Override* figure = override_of(in, step, term, bytes)) {
    return {term, bytes, figure->from, figure->trust};
  }
  if (in.on_devices) {
    const DeviceTermInputs inputs = device_inputs(in, rank, step);
    return {term, bytes, device_term_formula(inputs, term), device_term_trust(inputs, term)};
  }
  return {term, bytes, cpu_term_formula(cpu_inputs(in, rank, step), term),
          term == Term::process ? Trust::assumed : Trust::computed};
}

// Of one row, in bytes: "128 x 2 B", "(512 + 64) x 1 B", "(128 + 4) B" with the scale of int8.
std::string row_formula(std::string columns, bool is_sum, KvType type) {
  const Bytes scale = kv_row_bytes(type, 0);
  if (scale > 0) return fmt::format("({} + {}) B", columns, scale);
  return fmt::format("{} x {} B", is_sum ? "(" + columns + ")" : columns, kv_row_bytes(type, 1));
}

std::string kv_formula(const ModelSpec& model, const RankShape& rank, Blocks blocks, KvType type) {
  const std::string head = fmt::format("{} blocks x {} tokens x {} layers", grouped(blocks),
                                       kKvBlockTokens, model.layers);
  if (model.latent) {
    const std::string columns =
        fmt::format("{} + {}", model.latent->kv_rank, model.latent->rope_dim);
    return fmt::format("{} x {}", head, row_formula(columns, true, type));
  }
  return fmt::format("{} x 2 x {} x {}", head, counted(rank.shard.kv_heads.size(), "KV head"),
                     row_formula(std::to_string(model.head_dim), false, type));
}

}  // namespace

TermBytes ledger_bytes(const FitInputs& in, const RankShape& rank, const StepShape& step) {
  TermBytes bytes = in.on_devices ? device_term_bytes(device_inputs(in, rank, step))
                                  : cpu_term_bytes(cpu_inputs(in, rank, step));
  for (const Override& figure : in.overrides) {
    if (figure.term == Term::weights) {  // one figure for everything that a server loads
      bytes[Term::absorbed] = 0;
      bytes[Term::vision] = 0;
    }
  }
  for (const Override& figure : in.overrides) {
    if (figure.holds(step) && replaces(in, figure, bytes[figure.term])) {
      bytes[figure.term] = figure.bytes;
    }
  }
  return bytes;
}

std::vector<PlanRow> ledger_rows(const FitInputs& in, const RankShape& rank,
                                 const StepShape& step) {
  const TermBytes bytes = ledger_bytes(in, rank, step);
  const std::span<const Term> order =
      in.on_devices ? std::span<const Term>(kDeviceOrder) : std::span<const Term>(kCpuOrder);
  std::vector<PlanRow> rows;
  for (const Term term : order) {
    if ((in.on_devices || term == Term::graphs) && bytes[term] == 0) continue;
    rows.push_back(make_row(in, rank, step, term, bytes[term]));
  }
  return rows;
}

PlanRow kv_row(const FitInputs& in, const RankShape& rank, Blocks blocks, KvType type) {
  const Bytes model_bytes = kv_token_bytes(*in.model, rank.shard, type);
  const bool is_computed = rank.kv_trust == Trust::computed;
  std::string formula = kv_formula(*in.model, rank, blocks, type);
  if (!is_computed) {
    formula = fmt::format("{} blocks x {} tokens x {} B, by --assume", grouped(blocks),
                          kKvBlockTokens, grouped(rank.kv_token_bytes));
  } else if (rank.kv_token_bytes != model_bytes) {
    formula = fmt::format("{} blocks x {} tokens x ({} B + {} B of the draft model)",
                          grouped(blocks), kKvBlockTokens, grouped(model_bytes),
                          grouped(rank.kv_token_bytes - model_bytes));
  }
  return {Term::kv, blocks * rank_block_bytes(rank), std::move(formula), rank.kv_trust};
}

Bytes static_bytes(const TermBytes& bytes) {
  return bytes[Term::weights] + bytes[Term::absorbed] + bytes[Term::vision] + bytes[Term::draft];
}

Bytes start_bytes(const TermBytes& bytes) { return bytes[Term::context] + bytes[Term::collective]; }

}  // namespace plimsoll
