#include "shared/options/foreign_names.h"

#include <algorithm>
#include <iterator>

#include "shared/options/option_table.h"

namespace plimsoll {
namespace {

struct Synonym {
  std::string_view theirs;
  std::string_view ours;
};
// Of options that our table has not (yet); with those that it has, its aliases say it.
constexpr Synonym kSynonyms[] = {
    {"model-path", "model"},
    {"model-tag", "model"},
    {"tensor-parallel-size", "tp"},
    {"tp-size", "tp"},
    {"data-parallel-size", "dp"},
    {"dp-size", "dp"},
    {"pipeline-parallel-size", "pp"},
    {"pp-size", "pp"},
    {"ep-size", "ep"},
    {"expert-parallel-size", "ep"},
    {"max-seq-len", "context-length"},
    {"max-model-len", "context-length"},
    {"max-num-seqs", "max-running-requests"},
    {"max-num-batched-tokens", "chunked-prefill-size"},
    {"cuda-graph-max-bs-decode", "cuda-graph-max-bs"},
    {"max-cudagraph-capture-size", "cuda-graph-max-bs"},
    {"kv-cache-memory-bytes", "kv-cache-bytes"},
};

}  // namespace

std::string canonical_option(std::string_view name) {
  std::string dashed(name);
  std::ranges::replace(dashed, '_', '-');
  if (dashed.starts_with("--")) dashed.erase(0, 2);
  if (const OptionRow* row = find_option(dashed)) return std::string(row->name);
  const auto* found = std::ranges::find(kSynonyms, dashed, &Synonym::theirs);
  return found == std::end(kSynonyms) ? dashed : std::string(found->ours);
}

}  // namespace plimsoll
