# What `cmake --install` puts in place: programs, units, users and folders, configuration.

include(GNUInstallDirs)
foreach(program plimsolld plimsoll-worker plimsoll-router plimsoll)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(FILES systemd/plimsoll.socket DESTINATION lib/systemd/system)
install(FILES systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME plimsoll.conf)
install(FILES systemd/tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME plimsoll.conf)
# The prefix is only known then: --prefix and DESTDIR count.
install(CODE "set(PLIMSOLL_BINDIR \"${CMAKE_INSTALL_BINDIR}\")
set(PLIMSOLL_SOURCE \"${PROJECT_SOURCE_DIR}\")")
install(SCRIPT tools/cmake/install_service.cmake)
