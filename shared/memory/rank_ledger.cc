#include "shared/memory/rank_ledger.h"

#include <array>
#include <span>

#include <fmt/format.h>

namespace plimsoll {
namespace {

constexpr std::array<Term, 7> kCpuOrder = {Term::weights,   Term::tables, Term::activations,
                                           Term::workspace, Term::logits, Term::collective,
                                           Term::process};
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

std::string latent_formula(const ModelSpec& model, Blocks blocks, std::string_view element) {
  return fmt::format("{} blocks x {} tokens x {} layers x ({} + {}) x {}", grouped(blocks),
                     kKvBlockTokens, model.layers, model.latent->kv_rank, model.latent->rope_dim,
                     element);
}

std::string kv_formula(const ModelSpec& model, const RankShape& rank, Blocks blocks, KvType type) {
  const std::string element =
      fmt::format("{} B{}", kv_row_bytes(type, 1) > 2 ? 1 : kv_row_bytes(type, 1),
                  type == KvType::int8 ? " and a scale" : "");
  if (model.latent) return latent_formula(model, blocks, element);
  return fmt::format("{} blocks x {} tokens x {} layers x 2 x {} KV head{} x {} x {}",
                     grouped(blocks), kKvBlockTokens, model.layers, rank.shard.kv_heads.size(),
                     rank.shard.kv_heads.size() == 1 ? "" : "s", model.head_dim, element);
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
    if (in.on_devices && bytes[term] == 0) continue;
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
