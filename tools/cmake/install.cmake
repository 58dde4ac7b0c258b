# What `cmake --install` puts in place: programs, units, configuration.

include(GNUInstallDirs)
foreach(program plimsolld plimsoll-worker plimsoll-router plimsoll)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
