#include "shared/generation/fingerprint.h"

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

#include "shared/base/units.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string value_of(const std::vector<Setting>& settings, const std::string& name) {
  const auto found = std::ranges::find(settings, name, &Setting::name);
  return found == settings.end() ? "(none)" : found->value;
}

TEST(Fingerprint, KeepsVariablesThatMatterAndHidesSecrets) {
  const std::vector<std::string> variables = {"NCCL_P2P_DISABLE=1",
                                              "HOME=/root",
                                              "noise",
                                              "CUDA_VISIBLE_DEVICES=0,1=2",
                                              "PLIMSOLL_API_KEY=hush",
                                              "OMP_NUM_THREADS=" + std::string(5000, '1')};
  const std::vector<Setting> kept = kept_variables(variables);
  ASSERT_EQ(kept.size(), 4U);
  EXPECT_EQ(kept[0].name, "CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(kept[0].value, "0,1=2");
  EXPECT_EQ(value_of(kept, "PLIMSOLL_API_KEY"), "(set)");
  EXPECT_LT(value_of(kept, "OMP_NUM_THREADS").size(), 1100U);
}

TEST(Fingerprint, OwnVariablesAreThoseOfTheProcess) {
  ::setenv("NCCL_TEST_VARIABLE", "yes", 1);
  const std::vector<std::string> all = own_variables();
  EXPECT_NE(std::ranges::find(all, "NCCL_TEST_VARIABLE=yes"), all.end());
  ::unsetenv("NCCL_TEST_VARIABLE");
}

TEST(Fingerprint, ReadsKernelDriverAndWhereGpusHang) {
  const TempFolder folder;
  const fs::path& root = folder.path();
  write(root / "proc/sys/kernel/osrelease", "6.1.0-18\n");
  write(root / "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Thu Jan\nGCC version: x\n");
  const fs::path gpu = root / "sys/bus/pci/devices/0000:41:00.0";
  write(gpu / "vendor", "0x10de\n");
  write(gpu / "class", "0x030200\n");
  write(gpu / "device", "0x2bb1\n");
  write(gpu / "numa_node", "1\n");
  const fs::path other = root / "sys/bus/pci/devices/0000:00:1f.0";
  write(other / "vendor", "0x8086\n");
  write(other / "class", "0x030000\n");
  Machine machine;
  machine.cpu_name = "Test CPU";
  machine.cpus = {0, 1, 2};
  machine.nodes = {{.id = 0, .cpus = {0, 1, 2}}};
  machine.memory_total = 8 * kGiB;
  const std::vector<std::string> variables = {"NCCL_DEBUG=INFO"};
  const std::vector<Setting> found = read_fingerprint({.machine = machine,
                                                       .model = {},
                                                       .variables = variables,
                                                       .build = "plimsoll 1",
                                                       .root = root});
  EXPECT_EQ(value_of(found, "kernel"), "6.1.0-18");
  EXPECT_EQ(value_of(found, "driver"), "570.86.10");
  EXPECT_EQ(value_of(found, "cpus"), "3 x Test CPU");
  EXPECT_EQ(value_of(found, "numa"), "node 0: 3 CPUs");
  EXPECT_EQ(value_of(found, "NCCL_DEBUG"), "INFO");
  const std::string pcie = value_of(found, "pcie 0000:41:00.0");
  EXPECT_NE(pcie.find("NUMA node 1"), std::string::npos) << pcie;
  EXPECT_EQ(value_of(found, "pcie 0000:00:1f.0"), "(none)");
}

TEST(Fingerprint, AModelIsKnownByItsSizeItsHeadAndSamples) {
  const TempFolder folder;
  const fs::path path = folder.path() / "model.gguf";
  std::string bytes(20 * kMiB, 'a');
  write(path, bytes);
  const std::string first = model_fingerprint(path).value();
  EXPECT_EQ(model_fingerprint(path).value(), first);
  EXPECT_NE(first.find("20.0 MiB"), std::string::npos) << first;
  bytes[1000] = 'b';
  write(path, bytes);
  EXPECT_NE(model_fingerprint(path).value(), first);
  bytes[1000] = 'a';
  bytes.back() = 'b';
  write(path, bytes);
  EXPECT_NE(model_fingerprint(path).value(), first);
  write(path, bytes + "a");
  EXPECT_NE(model_fingerprint(path).value(), first);
  EXPECT_FALSE(model_fingerprint(folder.path() / "absent.gguf"));
}

TEST(Fingerprint, AFolderOfSafetensorsIsOneModel) {
  const TempFolder folder;
  write(folder.path() / "m/config.json", "{}");
  write(folder.path() / "m/model-1.safetensors", "weights");
  write(folder.path() / "m/README.md", "words");
  const std::string first = model_fingerprint(folder.path() / "m").value();
  write(folder.path() / "m/README.md", "other words");
  EXPECT_EQ(model_fingerprint(folder.path() / "m").value(), first);
  write(folder.path() / "m/config.json", "{ }");
  EXPECT_NE(model_fingerprint(folder.path() / "m").value(), first);
}

TEST(Fingerprint, SettingsReadBackAndSkipWhatIsNone) {
  const std::vector<Setting> settings = {{"a", "1", "flag", "x:3"}, {"b", "", ""}};
  const std::vector<Setting> back = settings_from_json(settings_to_json(settings));
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[0].place, "x:3");
  EXPECT_EQ(back[1].name, "b");
  EXPECT_TRUE(settings_from_json(Json("text")).empty());
  EXPECT_TRUE(settings_from_json(Json::array({Json(1)})).empty());
}

}  // namespace
}  // namespace plimsoll
