#include "daemon/journal.h"

#include <csignal>
#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

GenerationRecord record_of(std::int64_t number, Outcome outcome = Outcome::stopped) {
  GenerationRecord record;
  record.number = number;
  record.outcome = outcome;
  record.known_good = outcome == Outcome::serving || outcome == Outcome::stopped;
  record.options = Json::object({{"tp", Json::object({{"value", number}})}});
  return record;
}

class JournalTest : public ::testing::Test {
 protected:
  Journal open() {
    Result<Journal> journal = Journal::open(folder_.path());
    EXPECT_TRUE(journal) << journal.error().message;
    return std::move(*journal);
  }
  Generations read() {
    Result<Generations> all = read_generations(folder_.path());
    EXPECT_TRUE(all) << all.error().message;
    return std::move(*all);
  }
  TempFolder folder_;
};

TEST_F(JournalTest, WhatIsWrittenIsReadBackByTheNext) {
  {
    Journal journal = open();
    EXPECT_EQ(journal.last_number(), 0);
    EXPECT_FALSE(journal.committed());
    ASSERT_TRUE(journal.write(record_of(1)));
    ASSERT_TRUE(journal.write(record_of(2, Outcome::refused)));
    ASSERT_TRUE(journal.commit(Committed{.generation = 1, .options = 5, .given = 6}));
  }
  const Journal next = open();
  EXPECT_EQ(next.last_number(), 2);
  ASSERT_TRUE(next.committed());
  EXPECT_EQ(next.committed()->options, Json(5));
  EXPECT_EQ(read().records.size(), 2U);
  struct stat folder {};
  ASSERT_EQ(::stat(generations_folder(folder_.path()).c_str(), &folder), 0);
  EXPECT_EQ(folder.st_mode & 0777U, 0700U);
}

TEST_F(JournalTest, AKilledDaemonsGenerationsAreEnded) {
  {
    Journal journal = open();
    ASSERT_TRUE(journal.write(record_of(1, Outcome::serving)));
    ASSERT_TRUE(journal.write(record_of(2, Outcome::launching)));
  }
  (void)open();
  const Generations all = read();
  EXPECT_EQ(all.records[0].outcome, Outcome::stopped);
  EXPECT_TRUE(all.records[0].known_good);
  EXPECT_EQ(all.records[1].outcome, Outcome::failed);
  EXPECT_GT(all.records[1].ended, 0);
}

TEST_F(JournalTest, WhatNeverServedIsToldApartFromWhatWasComingBack) {
  {
    Journal journal = open();
    EXPECT_EQ(journal.interrupted(), 0);
    GenerationRecord back = record_of(1, Outcome::launching);
    back.known_good = true;
    ASSERT_TRUE(journal.write(back));
    ASSERT_TRUE(journal.write(record_of(2, Outcome::launching)));
  }
  EXPECT_EQ(open().interrupted(), 2);
  const Generations all = read();
  ASSERT_EQ(all.records.size(), 2U);
  for (const GenerationRecord& record : all.records) {
    EXPECT_EQ(record.outcome, record.number == 1 ? Outcome::stopped : Outcome::failed);
  }
  EXPECT_EQ(open().interrupted(), 0) << "said once";
}

TEST_F(JournalTest, ATornRecordIsNamedAndTheOthersStay) {
  {
    Journal journal = open();
    for (std::int64_t i = 1; i <= 3; ++i) ASSERT_TRUE(journal.write(record_of(i)));
  }
  std::filesystem::resize_file(generation_file(folder_.path(), 3), 40);
  std::ofstream(committed_file(folder_.path())) << "{\"generation\": 3, ";
  const Journal next = open();
  EXPECT_EQ(next.damaged().size(), 2U);
  EXPECT_FALSE(next.committed());
  EXPECT_EQ(next.last_number(), 3);  // its number is not given out again
  EXPECT_EQ(read().records.size(), 2U);
}

TEST_F(JournalTest, WhatAnInterruptedWriteLeftIsRemoved) {
  (void)open();
  const std::filesystem::path left = generations_folder(folder_.path()) / "00000007.json.Ab3dEf";
  std::ofstream(left) << "half";
  EXPECT_EQ(open().last_number(), 0);
  EXPECT_FALSE(std::filesystem::exists(left));
}

// The limit on a file's size makes write() fail as a full disk does.
TEST_F(JournalTest, AFullDiskLeavesWhatWasThere) {
  Journal journal = open();
  ASSERT_TRUE(journal.write(record_of(1)));
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{.rlim_cur = 16, .rlim_max = 16};
    ::setrlimit(RLIMIT_FSIZE, &none);
    GenerationRecord changed = record_of(1, Outcome::failed);
    const Status written = journal.write(changed);
    const Status committed = journal.commit(Committed{.generation = 1, .options = {}, .given = {}});
    const bool is_said = !written && !committed &&
                         written.error().message.find("00000001.json") != std::string::npos;
    ::_exit(is_said && !journal.committed() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const Generations all = read();
  ASSERT_EQ(all.records.size(), 1U);
  EXPECT_EQ(all.records[0].outcome, Outcome::stopped);
  EXPECT_TRUE(all.damaged.empty());
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(generations_folder(folder_.path()))) {
    files += entry.is_regular_file() ? 1U : 0U;
  }
  EXPECT_EQ(files, 1U);  // nothing half-written
}

TEST_F(JournalTest, ManyFailuresNeverPushOutWhatWorked) {
  Journal journal = open();
  ASSERT_TRUE(journal.write(record_of(1)));
  for (std::int64_t i = 2; i <= 120; ++i) {
    ASSERT_TRUE(journal.write(record_of(i, Outcome::refused)));
  }
  const Generations all = read();
  EXPECT_EQ(all.records.size(), 101U);
  EXPECT_EQ(all.records.front().number, 1);
  EXPECT_EQ(all.records[1].number, 21);
  EXPECT_EQ(all.last_number, 120);
}

TEST_F(JournalTest, UncommittingTwiceIsNoError) {
  Journal journal = open();
  ASSERT_TRUE(journal.commit(Committed{.generation = 1, .options = 1, .given = 2}));
  EXPECT_TRUE(journal.commit(std::nullopt));
  EXPECT_TRUE(journal.commit(std::nullopt));
  EXPECT_FALSE(open().committed());
}

}  // namespace
}  // namespace plimsoll
