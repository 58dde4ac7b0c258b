#include "daemon/journal.h"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/generation/abandoned.h"
#include "shared/options/folders.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// Of each kind. A launch that is refused every second must not push out the ones that worked.
constexpr std::size_t kGoodMax = 100;
constexpr std::size_t kOthersMax = 100;
constexpr std::size_t kCommittedBytesMax = 1024 * 1024;

// write_file() writes PATH.XXXXXX first.
bool is_unfinished(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::size_t at = name.find(".json.");
  return at != std::string::npos && name.size() == at + std::string(".json.XXXXXX").size();
}

void remove_unfinished(const fs::path& folder) {
  std::error_code ignored;  // they only take room
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (is_unfinished(entry.path())) fs::remove(entry.path(), ignored);
  }
}

std::string text_of(const Json& json) { return dump_json(json, 1) + "\n"; }

}  // namespace

Result<Journal> Journal::open(const fs::path& state) {
  TRY(make_private_folder(state));
  TRY(make_private_folder(generations_folder(state)));
  Journal journal(state);
  remove_unfinished(state);
  remove_unfinished(generations_folder(state));
  Generations all = TRY(read_generations(state));
  journal.damaged_ = std::move(all.damaged);
  journal.last_number_ = all.last_number;
  for (GenerationRecord& record : all.records) {
    journal.kept_.push_back({record.number, record.known_good});
    // With the lock held nobody runs it any more.
    if (!end_abandoned(record)) continue;
    record.ended = unix_seconds();
    if (!record.known_good) journal.interrupted_ = record.number;
    const Status written = journal.write(record);
    if (!written) journal.damaged_.push_back(written.error().message);
  }
  const Result<std::string> text = read_file(committed_file(state), kCommittedBytesMax);
  if (!text && text.error().code == Code::not_found) return journal;
  const Result<Json> json = text ? parse_json(*text) : Result<Json>(text.error());
  Result<Committed> committed = json ? committed_from_json(*json) : json.error();
  if (committed) {
    journal.committed_ = std::move(*committed);
  } else {
    journal.damaged_.push_back(fmt::format("{}: {}; which generation was in operation is not known",
                                           committed_file(state).string(),
                                           committed.error().message));
  }
  return journal;
}

Status Journal::write(const GenerationRecord& record) {
  TRY(write_file(generation_file(state_, record.number), text_of(generation_to_json(record))));
  last_number_ = std::max(last_number_, record.number);
  const auto found = std::ranges::find(kept_, record.number, &Kept::number);
  if (found != kept_.end()) {
    found->known_good = record.known_good;
    return {};
  }
  kept_.push_back({record.number, record.known_good});
  prune();
  return {};
}

Status Journal::commit(const std::optional<Committed>& committed) {
  if (committed) {
    TRY(write_file(committed_file(state_), text_of(committed_to_json(*committed))));
  } else {
    std::error_code failed;
    fs::remove(committed_file(state_), failed);
    if (failed) {
      return unavailable(
          fmt::format("remove {}: {}", committed_file(state_).string(), failed.message()));
    }
  }
  committed_ = committed;
  return {};
}

void Journal::prune() {
  for (const bool good : {true, false}) {
    const auto is_one = [good](const Kept& kept) { return kept.known_good == good; };
    const auto count = static_cast<std::size_t>(std::ranges::count_if(kept_, is_one));
    if (count <= (good ? kGoodMax : kOthersMax)) continue;
    const auto oldest = std::ranges::find_if(kept_, is_one);
    std::error_code ignored;  // it is tried again with the next
    if (fs::remove(generation_file(state_, oldest->number), ignored)) kept_.erase(oldest);
  }
}

}  // namespace plimsoll
