#include "tools/cli/render.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

Json sample_status() {
  const Result<Json> json = parse_json(R"json({
    "version": "0.1.0", "state": "serving", "reason": "", "operation": "", "generation": 3,
    "url": "http://127.0.0.1:8000", "time": 1700000100, "serving_s": 4000.5,
    "router": {"pid": 12, "state": "listening", "open_requests": 2, "queued_requests": 1,
               "requests_total": 40, "failed_total": 3},
    "model": "SmolLM2", "context_length": 8192, "queue": 1, "running": 2,
    "tokens_per_second": 61.25, "progress": {"done": 10, "total": 10},
    "replicas": [
      {"replica": 0, "state": "ready", "running": 2, "waiting": 0, "tokens_per_second": 61.25,
       "kv": {"blocks": 256, "used": 12},
       "ranks": [
         {"rank": 0, "pid": 10, "device": "cpu avx2, 1 thread", "state": "ready",
          "memory_bytes": 104857600, "restarts": 0,
          "memory": {"planned": 83886080, "measured": 85983232, "source": "PSS",
                     "kv": {"planned": 20971520, "committed": 18874368, "touched": 1048576}}},
         {"rank": 1, "pid": 11, "device": "cpu avx2, 1 thread", "state": "loading",
          "progress": {"done": 1, "total": 4}, "memory_bytes": 52428800, "restarts": 2}]},
      {"replica": 1, "state": "waiting", "retry_in_s": 1.5, "ranks": [
         {"rank": 0, "pid": 0, "device": "", "state": "gone", "memory_bytes": 0}]}],
    "drift": [{"term": "process", "planned": 10485760, "measured": 12582912, "tolerance": 1677721,
               "ranks": ["0.0"]}],
    "last_fault": {"time": 1700000000, "message": "killed by signal 9 (SIGKILL)",
                   "replica": 0, "rank": 1}})json");
  EXPECT_TRUE(json);
  return json ? *json : Json();
}

TEST(Render, AStatusIsOneScreen) {
  ::setenv("TZ", "UTC", 1);
  const std::filesystem::path golden = golden_path("cli/status.txt");
  const std::string text = render_status(sample_status());
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file(golden, text));
  }
  EXPECT_EQ(text, read_test_file(golden)) << "run with UPDATE_GOLDEN=1 and read the difference";
}

TEST(Render, DevicesInQuarantineAreNamedWithTheirReason) {
  ::setenv("TZ", "UTC", 1);
  Json status = sample_status();
  Json device = Json::object({{"device", "GPU-1"}, {"name", "NVIDIA H200"}});
  device.set("reason", "Xid 79: it has fallen off the bus; it needs reset")
      .set("since", 1700000000);
  status.set("quarantine", Json::array({device}));
  EXPECT_NE(render_status(status).find("quarantine: GPU-1 (NVIDIA H200): Xid 79: it has fallen off "
                                       "the bus; it needs reset, since 2023-11-14 22:13:20\n"),
            std::string::npos)
      << render_status(status);
}

TEST(Render, WhatADeadDaemonLeftIsSaidToBeOld) {
  ::setenv("TZ", "UTC", 1);
  EXPECT_EQ(render_last_known(sample_status()).rfind("last known, at 2023-11-14 22:15:00:\n", 0),
            0U);
}

TEST(Render, AStatusThatLacksEverythingIsStillShown) {
  EXPECT_NE(render_status(Json::object()).find("plimsoll ?"), std::string::npos);
  EXPECT_NE(render_status(Json("text")).find("plimsoll ?"), std::string::npos);
}

TEST(Render, ChangesSayWhatWasAndIs) {
  const Json result = Json::object(
      {{"changes",
        Json::array({Json::object(
            {{"name", "port"}, {"before", "8000"}, {"after", "8001"}, {"effect", "full"}})})}});
  EXPECT_EQ(render_changes(result), "  port: 8000 -> 8001 (full)\n");
  EXPECT_EQ(render_changes(Json()), "");
}

Json loading(std::int64_t done) {
  return Json::object(
      {{"state", "loading"}, {"progress", Json::object({{"done", done}, {"total", 400}})}});
}

TEST(Render, WithoutATerminalProgressIsAFewLines) {
  std::ostringstream out;
  std::ostringstream err;
  std::istringstream in;
  Console console{out, err, in, false};
  {
    ProgressView view(console);
    for (std::int64_t done = 0; done <= 400; ++done) view.show(loading(done));
    view.show(Json::object({{"state", "warming"}}));
  }
  const std::string text = err.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
  EXPECT_NE(text.find("loading 50 %, 200 B of 400 B\n"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("warming\n")) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Render, OnATerminalProgressIsABarThatGoes) {
  std::ostringstream out;
  std::ostringstream err;
  std::istringstream in;
  Console console{out, err, in, true};
  {
    ProgressView view(console);
    view.show(loading(200));
    EXPECT_NE(err.str().find("[############............] loading 50 %"), std::string::npos);
  }
  EXPECT_TRUE(err.str().ends_with("\r\033[K"));
}

}  // namespace
}  // namespace plimsoll
