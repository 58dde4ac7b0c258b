# What `cmake --install` puts in place: programs, unit, configuration.

include(GNUInstallDirs)
foreach(program plimsolld plimsoll-worker plimsoll-router plimsoll)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(DIRECTORY systemd/ DESTINATION lib/systemd/system FILES_MATCHING PATTERN "*.service")
# A configuration that was edited stays: the commented defaults lie beside it.
install(FILES configs/default.conf DESTINATION ${CMAKE_INSTALL_SYSCONFDIR}/plimsoll
        RENAME plimsoll.conf.default OPTIONAL)
