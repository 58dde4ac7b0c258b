#include <iostream>
#include <string>
#include <vector>

#include <unistd.h>

#include "tools/cli/cli.h"

int main(int argc, char** argv) {
  plimsoll::Console console{std::cout, std::cerr, std::cin, ::isatty(STDERR_FILENO) == 1};
  const std::vector<std::string> words(argv + 1, argv + argc);
  return plimsoll::run_cli(words, console);
}
