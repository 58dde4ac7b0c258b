#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <unistd.h>

#include "tools/cli/cli.h"

int main(int argc, char** argv) {
  // NO_COLOR: what people set who want none.
  const bool has_colour = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  plimsoll::Console console{std::cout, std::cerr, std::cin, ::isatty(STDERR_FILENO) == 1,
                            has_colour};
  const std::vector<std::string> words(argv + 1, argv + argc);
  return plimsoll::run_cli(words, console);
}
