// LearnedTerms: what the newest comparable launch measured for the terms that no formula gives, for
// the plan of the next one.
//
// Comparable is a launch of the same model on the same machine and software, divided over ranks in
// the same way. Whatever is learned is measured again at each start, and a difference is reported.
#pragma once

#include <filesystem>
#include <vector>

#include "shared/generation/generation_record.h"
#include "shared/generation/launch_diff.h"
#include "shared/machine/machine.h"
#include "shared/options/option_set.h"

namespace plimsoll {

struct LearnQuestion {
  const std::vector<Setting>& environment;  // read_fingerprint()
  const OptionSet& options;
};

// Contexts, communicators and graphs of devices; a process on CPUs, and on devices what no row is
// for. The largest of all ranks, in whole MiB. Pure.
std::vector<LearnedTerm> learned_terms(const Generations& all, const LearnQuestion& question);

// By which table the collectives of the newest of them went (shared/collective/backend_table.h);
// null: none has one, or another backend was asked for. Pure.
Json learned_collectives(const Generations& all, const LearnQuestion& question);
Json read_learned_collectives(const std::filesystem::path& state, const LearnQuestion& question);

// Of the records under that folder; what cannot be read teaches nothing.
std::vector<LearnedTerm> read_learned_terms(const std::filesystem::path& state,
                                            const LearnQuestion& question);

// What the machine's description says itself goes before it.
void add_learned(std::vector<LearnedTerm> terms, Machine& machine);

}  // namespace plimsoll
