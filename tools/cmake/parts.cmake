# Every compiler flag of the project, and the functions that folders call.
# Sources and tests are found by pattern: adding one edits no CMake file.

include(CTest)
include(GoogleTest)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(GTest REQUIRED)
find_package(Boost REQUIRED CONFIG COMPONENTS program_options context)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED)
pkg_check_modules(zmq REQUIRED IMPORTED_TARGET libzmq)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(systemd REQUIRED IMPORTED_TARGET libsystemd)

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(plimsoll_flags INTERFACE)
# A plain option, since CMAKE_CXX_STANDARD 20 would leak into CUDA and stop the generation there.
target_compile_options(plimsoll_flags INTERFACE
  -std=c++20 -Wall -Wextra -Wshadow -Wconversion -Wnon-virtual-dtor -Werror -fno-omit-frame-pointer)
target_include_directories(plimsoll_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_compile_definitions(plimsoll_flags INTERFACE
  BOOST_ASIO_HAS_CO_AWAIT=1 BOOST_ASIO_HAS_STD_COROUTINE=1
  PLIMSOLL_VERSION="${PROJECT_VERSION}")
target_link_libraries(plimsoll_flags INTERFACE Threads::Threads)
if(PLIMSOLL_SANITIZE)
  target_compile_options(plimsoll_flags INTERFACE
    -fsanitize=${PLIMSOLL_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(plimsoll_flags INTERFACE -fsanitize=${PLIMSOLL_SANITIZE})
  if(PLIMSOLL_SANITIZE MATCHES thread)
    # TSan does not know fences; Asio without its fenced blocks is as correct and can be checked.
    # The warning is a false one: instrumented, a std::variant or std::optional that is moved from under its
    # own check of the index looks uninitialised to g++ 12. The other presets keep it.
    target_compile_options(plimsoll_flags INTERFACE -Wno-tsan -Wno-maybe-uninitialized)
    target_compile_definitions(plimsoll_flags INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK=1)
  endif()
endif()

# add_part(NAME DEPENDS ...): a static library of all sources below this folder, without main.cc.
function(add_part name)
  cmake_parse_arguments(PART "" "DIR" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${PART_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  if(NOT sources)
    return()
  endif()
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC plimsoll_flags ${PART_DEPENDS})
endfunction()

# add_program(NAME PART): main.cc of this folder and its part.
function(add_program name part)
  if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/main.cc)
    return()
  endif()
  add_executable(${name} main.cc)
  target_link_libraries(${name} PRIVATE ${part})
endfunction()

# add_tests(DIR LABEL l DEPENDS ...): all *_test.cc below DIR, one binary, one CTest entry a case.
function(add_tests dir)
  cmake_parse_arguments(TESTS "" "LABEL" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*_test.cc)
  foreach(part ${TESTS_DEPENDS})
    if(NOT TARGET ${part})
      return()
    endif()
  endforeach()
  if(NOT sources)
    return()
  endif()
  set(name ${dir}_tests)
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${TESTS_DEPENDS} test_support GTest::gtest GTest::gtest_main)
  target_precompile_headers(${name} PRIVATE <gtest/gtest.h>)
  # Lets ccache see through the precompiled header.
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  if(PLIMSOLL_SANITIZE)
    # A few entries a binary: each start of an instrumented one costs as much as a case does. In quarters no
    # entry comes near its deadline, and two of them run at a time.
    foreach(quarter RANGE 3)
      set(entry ${name}.${quarter})
      add_test(NAME ${entry} COMMAND ${name} --gtest_brief=1)
      set_tests_properties(${entry} PROPERTIES LABELS ${TESTS_LABEL} TIMEOUT 240
        ENVIRONMENT "GTEST_TOTAL_SHARDS=4;GTEST_SHARD_INDEX=${quarter}")
    endforeach()
    return()
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST
    TEST_PREFIX ${dir}. PROPERTIES LABELS ${TESTS_LABEL} TIMEOUT 60)
endfunction()
