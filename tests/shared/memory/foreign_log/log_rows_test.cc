#include "shared/memory/foreign_log/log_rows.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

// What follows the start that all have in common.
std::vector<LogRow> rows_after_start(std::string_view more) {
  std::string text(
      "server_args=ServerArgs(model_path='m', mem_fraction_static=0.8)\n"
      "Load weight begin. avail mem=100.00 GB\n"
      "Load weight end. type=A, avail mem=60.00 GB, mem usage=40.00 GB\n");
  text.append(more);
  const Result<ForeignLog> log = parse_foreign_log(text);
  EXPECT_TRUE(log) << log.error().message;
  return log ? rows_of(*log, figures_of(*log, {})) : std::vector<LogRow>{};
}

std::vector<std::string> names(const std::vector<LogRow>& rows) {
  std::vector<std::string> names;
  for (const LogRow& row : rows) names.push_back(row.name);
  return names;
}

TEST(LogRows, ADraftThatWasLoadedAfterKvDoesNotCountBeforeIt) {
  const std::vector<LogRow> rows = rows_after_start(
      "KV Cache is allocated. #tokens: 1000, K size: 20.00 GB, V size: 20.00 "
      "GB\n"
      "Load weight begin. avail mem=20.00 GB\n"
      "Load weight end. type=B, avail mem=17.50 GB, mem usage=2.50 GB\n");
  EXPECT_EQ(names(rows), (std::vector<std::string>{"free before weights", "weights",
                                                   "free after weights", "kept back", "left for KV",
                                                   "KV allocated", "draft weights"}));
  EXPECT_EQ(rows.back().remark, "loaded after KV");
}

TEST(LogRows, ADraftBeforeKvIsPartOfTheSum) {
  const std::vector<LogRow> rows = rows_after_start(
      "Load weight begin. avail mem=60.00 GB\n"
      "Load weight end. type=B, avail mem=57.50 GB, mem usage=2.50 GB\n");
  ASSERT_GE(rows.size(), 4U);
  EXPECT_EQ(rows[2].name, "draft weights");
  EXPECT_EQ(rows[0].bytes + rows[1].bytes + rows[2].bytes, rows[3].bytes);
}

TEST(LogRows, StatesWithThoseOfADraftsTokensAddUp) {
  const Result<ForeignLog> log = parse_foreign_log(
      "server_args=ServerArgs(model_path='m', mem_fraction_static=0.8)\n"
      "Load weight begin. avail mem=100.00 GB\n"
      "Load weight end. type=A, avail mem=60.00 GB, mem usage=40.00 GB\n"
      "Mamba Cache is allocated. max_mamba_cache_size: 40, conv_state size: 0.25GB, ssm_state "
      "size: 1.50GB intermediate_ssm_state_cache size: 0.50GB "
      "intermediate_conv_window_cache size: 0.75GB\n");
  ASSERT_TRUE(log) << log.error().message;
  EXPECT_EQ(log->ranks.at(0).state, 3 * kGiB);
  EXPECT_EQ(log->beside_kv(), 3 * kGiB);
}

// Nothing of the share is KV's then.
TEST(LogRows, KvThatIsGivenInBytesIsNotWhatIsLeft) {
  const Result<ForeignLog> log = parse_foreign_log(
      "INFO non-default args: {'model': 'm', 'gpu_memory_utilization': 0.9, "
      "'kv_cache_memory_bytes': 4294967296}\n"
      "INFO [gpu_worker.py:420] Free memory on device (78.70/79.25 GiB) on startup. Desired GPU "
      "memory utilization is (0.9, 71.32 GiB). Actual usage is 14.99 GiB for weight, 1.20 GiB for "
      "peak activation, 0.10 GiB for non-torch memory, and 0.68 GiB for CUDAGraph memory. Current "
      "kv cache memory in use is 4.00 GiB.\n");
  ASSERT_TRUE(log) << log.error().message;
  ASSERT_TRUE(log->has_kv_in_bytes());
  const std::vector<std::string> all = names(rows_of(*log, figures_of(*log, {})));
  EXPECT_EQ(std::ranges::count(all, "KV, as given"), 1);
  EXPECT_EQ(std::ranges::count(all, "left for KV"), 0);
}

TEST(LogRows, TokensAreSaidWhereNoLineSaysTheBytesOfKv) {
  const std::vector<LogRow> rows = rows_after_start(
      "max_total_num_tokens=284196, chunked_prefill_size=2048, "
      "max_running_requests=2049, context_len=131072\n");
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows.back().name, "left for KV");
  EXPECT_EQ(rows.back().remark, "284,196 tokens");
}

}  // namespace
}  // namespace plimsoll
