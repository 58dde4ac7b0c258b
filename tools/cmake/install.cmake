# What `cmake --install` puts in place: programs, units, configuration.

include(GNUInstallDirs)
install(TARGETS plimsolld plimsoll-worker plimsoll-router plimsoll
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
