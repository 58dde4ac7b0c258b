# At install time: the unit with the installed paths, and the configuration where the daemon looks.

get_filename_component(prefix "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
string(REGEX REPLACE "/$" "" prefix "${prefix}")
set(PLIMSOLL_BIN "${prefix}/${PLIMSOLL_BINDIR}")
# A system's daemon reads /etc/plimsoll, wherever its programs are; one in a folder of somebody's own
# is told by its unit.
if(prefix MATCHES "^(/usr|/usr/local|/opt(/.*)?|)$")
  set(PLIMSOLL_CONF /etc/plimsoll)
else()
  set(PLIMSOLL_CONF "${prefix}/etc/plimsoll")
endif()

set(unit "$ENV{DESTDIR}${prefix}/lib/systemd/system/plimsoll.service")
configure_file("${PLIMSOLL_SOURCE}/systemd/plimsoll.service.in" "${unit}" @ONLY
               FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
message(STATUS "Installing: ${unit}")

# A configuration that was edited stays: the commented defaults lie beside it. file(INSTALL) puts
# DESTDIR in front by itself.
set(defaults "${PLIMSOLL_SOURCE}/configs/default.conf")
file(INSTALL "${defaults}" DESTINATION "${PLIMSOLL_CONF}" RENAME plimsoll.conf.default)
if(NOT EXISTS "$ENV{DESTDIR}${PLIMSOLL_CONF}/plimsoll.conf")
  file(INSTALL "${defaults}" DESTINATION "${PLIMSOLL_CONF}" RENAME plimsoll.conf)
endif()
