#include "shared/base/result.h"

namespace plimsoll {

const char* code_name(Code code) {
  switch (code) {
    case Code::invalid:
      return "invalid";
    case Code::not_found:
      return "not_found";
    case Code::does_not_fit:
      return "does_not_fit";
    case Code::unavailable:
      return "unavailable";
    case Code::timed_out:
      return "timed_out";
    case Code::corrupt:
      return "corrupt";
    case Code::internal:
      return "internal";
  }
  return "internal";
}

int exit_code(Code code) {
  switch (code) {
    case Code::invalid:
    case Code::not_found:
    case Code::corrupt:
      return 78;
    case Code::does_not_fit:
      return 3;
    case Code::unavailable:
    case Code::timed_out:
      return 75;
    case Code::internal:
      return 1;
  }
  return 1;
}

int http_status(Code code) {
  switch (code) {
    case Code::invalid:
      return 400;
    case Code::not_found:
      return 404;
    case Code::does_not_fit:
    case Code::unavailable:
      return 503;
    case Code::timed_out:
      return 504;
    case Code::corrupt:
    case Code::internal:
      return 500;
  }
  return 500;
}

}  // namespace plimsoll
