#include "shared/memory/foreign_log/log_line.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(LogLine, RanksAreNamedInManyWays) {
  const std::pair<const char*, const char*> cases[] = {
      {"[2026-02-26 09:12:30 TP0] Load weight begin.", "TP0"},
      {"[2026-02-26 09:12:30 DP1 TP12] x", "DP1 TP12"},
      {"[2026-02-26 09:12:30 PP0 TP1 EP2] x", "PP0 TP1 EP2"},
      {"[TP1 EP1] Load weight end.", "TP1 EP1"},
      {"[gpu_id=3] Load weight end.", "TP3"},
      {"[gpu=0] Load weight end.", "TP0"},
      {"(Worker_TP0 pid=79) INFO 07-05 08:55:20 [gpu_worker.py:466] x", "TP0"},
      {"(Worker_DP1_TP0_EP4 pid=79) INFO x", "DP1 TP0 EP4"},
      {"(EngineCore_DP0 pid=212) INFO 10-06 x", "DP0"},
      {"(EngineCore pid=199) INFO x", ""},
      {"(VllmWorkerProcess pid=535) INFO x", ""},
      {"(VllmWorker rank=2 pid=249) ERROR x", "TP2"},
      {"[2026-02-26 09:12:03] server_args=ServerArgs(", ""},
      {"INFO 04-30 10:20:35 [monitor.py:33] x", ""},
      {"prometheus: PIPE [TPU7 HTTP] TP", ""},
      {"", ""}};
  for (const auto& [line, rank] : cases) EXPECT_EQ(rank_of_line(line), rank) << line;
}

TEST(LogLine, TheSourceOfATracebackSaysNothing) {
  EXPECT_TRUE(says("ValueError: No memory. Try", "No memory"));
  EXPECT_FALSE(says("    raise ValueError(\"No memory. \"", "No memory"));
  EXPECT_FALSE(says("ERROR [core.py:7]     f'No memory of '", "No memory"));
  EXPECT_TRUE(says("{\"level\": \"error\", \"message\": \"No memory\"}", "No memory"));
  EXPECT_FALSE(says("anything", "No memory"));
}

TEST(LogLine, ProcessesAreNumberedInTheHeadAlone) {
  EXPECT_EQ(pid_of_line("(EngineCore_DP0 pid=276) ERROR x"), 276);
  EXPECT_EQ(pid_of_line("2026-05-01T10:00:00.123456789Z stderr F (APIServer pid=7) x"), 7);
  std::string far(100, 'x');
  far += " pid=7";
  EXPECT_FALSE(pid_of_line(far));
}

TEST(LogLine, AFigureMayStandBeforeItsName) {
  const std::string_view text =
      "Actual usage is 60.5 GiB for weight, 512 MiB for peak activation, and 1,024 KiB for x. GiB";
  EXPECT_EQ(bytes_before(text, " for weight"), kGiB * 121 / 2);
  EXPECT_EQ(bytes_before(text, " for peak activation"), 512 * kMiB);
  EXPECT_EQ(bytes_before(text, " for x"), kMiB);
  EXPECT_EQ(bytes_before("(GPU 0; 23.50 GiB total capacity", " total capacity"), kGiB * 47 / 2);
  EXPECT_FALSE(bytes_before(text, " for nothing"));
  EXPECT_FALSE(bytes_before(text, "Actual"));
  EXPECT_FALSE(bytes_before("60 for weight", " for weight")) << "without a unit";
  EXPECT_FALSE(bytes_before("GiB for weight", " for weight"));
}

TEST(LogLine, BytesAreBinaryWhateverTheyAreCalled) {
  EXPECT_EQ(bytes_behind("avail mem=94.00 GB", "avail mem="), 94 * kGiB);
  EXPECT_EQ(bytes_behind("takes 21.5GiB; x", "takes "), kGiB * 43 / 2);
  EXPECT_EQ(bytes_behind("has 512.25 MiB", "has "), kMiB * 2049 / 4);
  EXPECT_EQ(bytes_behind("size: 1,024 bytes", "size:"), 1024);
  EXPECT_EQ(bytes_behind("mem usage=3.05 GB.", "mem usage="), 3274912563);
  EXPECT_EQ(bytes_behind("rest_memory=-3.51 GB", "rest_memory="), -3768833802);
  EXPECT_EQ(bytes_behind("local_gpu_memory=30.5, x", "local_gpu_memory="), kGiB * 61 / 2);
  EXPECT_EQ(bytes_behind("0 bytes is free", ""), 0);
  EXPECT_FALSE(bytes_behind("avail mem=", "avail mem="));
  EXPECT_FALSE(bytes_behind("avail mem=?? GB", "avail mem="));
  EXPECT_FALSE(bytes_behind("this has 17179869184000.00 GiB", "has "));
  EXPECT_FALSE(bytes_behind("x", "avail mem="));
}

TEST(LogLine, CountsMayBeGrouped) {
  EXPECT_EQ(count_behind("GPU KV cache size: 447,088 tokens", "cache size:"), 447088);
  EXPECT_EQ(count_behind("#tokens: 159215, K", "#tokens:"), 159215);
  EXPECT_EQ(number_behind("per request: 13.64x", "per request:"), 13.64);
  EXPECT_EQ(number_behind("static=0.55.", "static="), 0.55);
  EXPECT_FALSE(count_behind("#tokens: none", "#tokens:"));
}

TEST(LogLine, ColoursAreTakenOut) {
  std::string storage;
  EXPECT_EQ(without_colours("\x1b[32mINFO\x1b[0m x\r", storage), "INFO x");
  EXPECT_EQ(without_colours("plain", storage), "plain");
  EXPECT_EQ(without_colours("cut \x1b[3", storage), "cut ");
}

TEST(LogLine, BracketsOfWhoeverCollectsLogsNameNoRank) {
  EXPECT_EQ(rank_of_line("Nov 30 12:00:00 host7 sglang[4711]: [2026-02-28 14:03:05 TP3] Init"),
            "TP3");
  EXPECT_EQ(rank_of_line("[pod/kimi-0/sglang] [2026-02-28 14:03:05 DP1 TP0] Init"), "DP1 TP0");
  EXPECT_EQ(rank_of_line("host (node 7) vllm[9]: (Worker_TP1 pid=79) INFO"), "TP1");
  EXPECT_EQ(rank_of_line("[worker-0] [gpu=2] Load weight begin."), "TP2");
  EXPECT_EQ(rank_of_line("Nov 30 12:00:00 host7 sglang[4711]: [2026-02-28 14:03:05] Init"), "");
}

TEST(LogLine, ARankGluedBehindAProgressBarSpeaksForItself) {
  EXPECT_EQ(
      rank_of_line("[2026-06-08 07:21:04 TP0] Capturing batches (bs=10):   0%| | 0/5 [00:00<?, "
                   "?it/s][2026-06-08 07:21:05 TP1] Capture cuda graph end"),
      "TP1");
  EXPECT_EQ(rank_of_line("Loading shards: 66/66 [00:15<00:00, 4.09it/s](Worker_TP1 pid=79) INFO"),
            "TP1");
  EXPECT_EQ(rank_of_line("Rank 3: Load weight end."), "TP3");
}

}  // namespace
}  // namespace plimsoll
