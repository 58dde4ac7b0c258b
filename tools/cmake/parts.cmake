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
# Debian lists private headers of its dependencies too, in another order each time CMake runs again: then
# everything would be compiled anew.
set_target_properties(PkgConfig::zmq PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${zmq_INCLUDEDIR}" INTERFACE_COMPILE_OPTIONS "")
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(systemd REQUIRED IMPORTED_TARGET libsystemd)

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
find_program(CCACHE ccache)
if(CCACHE)
  # Clones of the tree share what was compiled: paths are relative to it, and a precompiled header is known
  # by its .sum (see precompile), since its own bytes differ each time.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PCH_EXTSUM=1 ${CCACHE})
endif()

add_library(plimsoll_flags INTERFACE)
# A plain option, since CMAKE_CXX_STANDARD 20 would leak into CUDA and stop the generation there.
target_compile_options(plimsoll_flags INTERFACE
  -std=c++20 -Wall -Wextra -Wshadow -Wconversion -Wnon-virtual-dtor -Werror -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # KiB before the compiler first collects its garbage: a source that it need not collect for is done sooner.
  target_compile_options(plimsoll_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # False in moves of a std::variant; g++ 12, with which every preset is tested, has the warning.
  target_compile_options(plimsoll_flags INTERFACE -Wno-maybe-uninitialized)
endif()
target_include_directories(plimsoll_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_compile_definitions(plimsoll_flags INTERFACE
  BOOST_ASIO_HAS_CO_AWAIT=1 BOOST_ASIO_HAS_STD_COROUTINE=1
  PLIMSOLL_VERSION="${PROJECT_VERSION}")
target_link_libraries(plimsoll_flags INTERFACE Threads::Threads)
if(PLIMSOLL_SANITIZE)
  # The warning is a false one: instrumented, a std::variant or std::optional that is read or moved from
  # under its own check looks uninitialised to g++ 12. The other presets keep it.
  target_compile_options(plimsoll_flags INTERFACE
    -fsanitize=${PLIMSOLL_SANITIZE} -fno-sanitize-recover=all -Wno-maybe-uninitialized)
  target_link_options(plimsoll_flags INTERFACE -fsanitize=${PLIMSOLL_SANITIZE})
  if(PLIMSOLL_SANITIZE MATCHES undefined)
    # A check before each access doubles the time to compile; null and overflowed pointers that are used are
    # caught by AddressSanitizer.
    target_compile_options(plimsoll_flags INTERFACE -fno-sanitize=null,alignment,vptr,pointer-overflow)
  endif()
  if(PLIMSOLL_SANITIZE MATCHES thread)
    # TSan does not know fences; Asio without its fenced blocks is as correct and can be checked.
    target_compile_options(plimsoll_flags INTERFACE -Wno-tsan)
    target_compile_definitions(plimsoll_flags INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK=1)
  endif()
endif()

# precompile(TARGET HEADERS ...): standard headers that its sources share; they include them all the same
# (tools/check all builds without). Never headers of ours: a change would compile everything again.
function(precompile target)
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.gch.sum
       CONTENT "${ARGN} ${CMAKE_CXX_COMPILER_VERSION} ${GTest_VERSION}")
  list(TRANSFORM ARGN PREPEND "$<$<COMPILE_LANGUAGE:CXX>:<")
  list(TRANSFORM ARGN APPEND "$<ANGLE-R>>")
  target_precompile_headers(${target} PRIVATE ${ARGN})
  # Lets ccache see through the precompiled header.
  target_compile_options(${target} PRIVATE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess>)
endfunction()

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
  precompile(${name} algorithm array charconv chrono cstdint filesystem fmt/format.h functional map memory
             optional span string string_view unordered_map utility variant vector)
endfunction()

# add_program(NAME PART): main.cc of this folder and its part.
function(add_program name part)
  if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/main.cc)
    return()
  endif()
  add_executable(${name} main.cc)
  target_link_libraries(${name} PRIVATE ${part})
endfunction()

# add_tests(DIR LABEL l DEPENDS ... [THREADED ...]): all sources below DIR, one binary, one CTest entry a
# case. THREADED are those below DIR in which ThreadSanitizer can see something; without it, all.
function(add_tests dir)
  cmake_parse_arguments(TESTS "" "LABEL" "DEPENDS;THREADED" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cc)
  if(PLIMSOLL_SANITIZE MATCHES thread AND TESTS_THREADED)
    list(JOIN TESTS_THREADED "|" threaded)
    list(FILTER sources INCLUDE REGEX "/tests/${dir}/(${threaded})")
  endif()
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
  precompile(${name} gtest/gtest.h)
  # What they call is optimised; they themselves had better be compiled soon.
  if(PLIMSOLL_SANITIZE)
    target_compile_options(${name} PRIVATE -O0 -fno-sanitize=undefined)
  else()
    target_compile_options(${name} PRIVATE -O1)
  endif()
  if(PLIMSOLL_SANITIZE)
    # A few entries a binary: each start of an instrumented one costs as much as a case does. In quarters no
    # entry comes near its deadline, and two of them run at a time.
    set(filter *)
    if(PLIMSOLL_SANITIZE MATCHES thread)
      # Their threads are those of the others.
      set(filter -*/AttentionPath.*/Scalar:*/AttentionPath.*/Avx512)
    endif()
    foreach(quarter RANGE 3)
      set(entry ${name}.${quarter})
      add_test(NAME ${entry} COMMAND ${name} --gtest_brief=1 --gtest_filter=${filter})
      set_tests_properties(${entry} PROPERTIES LABELS ${TESTS_LABEL} TIMEOUT 240
        ENVIRONMENT "GTEST_TOTAL_SHARDS=4;GTEST_SHARD_INDEX=${quarter}")
    endforeach()
    return()
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST
    TEST_PREFIX ${dir}. PROPERTIES LABELS ${TESTS_LABEL} TIMEOUT 60)
endfunction()
