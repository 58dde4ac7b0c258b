#include "worker/rank.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

// Anonymous memory that this process has touched, from /proc/self/status; 0 where it is not told.
Bytes resident_anonymous_bytes() {
  constexpr std::string_view kLabel = "RssAnon:";
  const auto status = read_file("/proc/self/status", 64 * 1024);
  if (!status) return 0;
  for (const std::string_view line : split(*status, '\n')) {
    if (!line.starts_with(kLabel)) continue;
    const std::string_view number = trim(line.substr(kLabel.size()));
    Bytes kibibytes = 0;
    (void)std::from_chars(number.data(), number.data() + number.size(), kibibytes);
    return kibibytes * kKiB;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<Rank>> Rank::load(Setup setup,
                                         const std::function<void(const LoadProgress&)>& progress) {
  std::unique_ptr<Rank> rank(new Rank(std::move(setup)));
  TRY(rank->start(progress));
  return rank;
}

Status Rank::start(const std::function<void(const LoadProgress&)>& progress) {
  const GgufFile file = TRY(GgufFile::open(setup_.model_path));
  spec_ = TRY_CONTEXT(setup_.model_path + ": ", read_model_spec(file));
  arena_ = TRY(Arena::create(setup_.plan));
  const auto index = static_cast<std::size_t>(setup_.collective->rank());
  weights_ = std::make_unique<ModelWeights>(TRY(
      load_weights(file, spec_, setup_.shards.ranks[index], *setup_.backend, arena_, progress)));
  engine_ = std::make_unique<Engine>(TRY(Engine::create({.spec = &spec_,
                                                         .shards = &setup_.shards,
                                                         .weights = weights_.get(),
                                                         .backend = setup_.backend.get(),
                                                         .collective = setup_.collective.get(),
                                                         .arena = &arena_,
                                                         .limits = setup_.limits})));
  return {};
}

Json Rank::measured() const {
  Json result = Json::object();
  Bytes touched = 0;
  for (const Term term : kArenaTerms) {
    result.set(term_name(term), arena_.taken(term));
    if (term == Term::weights || term == Term::tables) touched += arena_.taken(term);
  }
  // The rest of the process: heap, thread stacks, libraries' own memory.
  result.set(term_name(Term::process), std::max<Bytes>(resident_anonymous_bytes() - touched, 0));
  return result;
}

}  // namespace plimsoll
