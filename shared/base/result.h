// Result: a value or an error, for everything that can fail because of the outside.
//
// Member names follow std::expected, which neither nvcc 13 nor clang 14 can compile; one day this
// becomes an alias. The set of codes is closed: exit codes and HTTP statuses follow from it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace plimsoll {

enum class Code {
  invalid,       // bad option, request, message or file content        exit 78, HTTP 400
  not_found,     // a named thing does not exist                        exit 78, HTTP 404
  does_not_fit,  // the memory plan, or a bounded queue, has no room    exit 3,  HTTP 503
  unavailable,   // right now it cannot be done; later it may           exit 75, HTTP 503
  timed_out,     // a deadline passed                                   exit 75, HTTP 504
  corrupt,       // data that was written whole is damaged              exit 78, HTTP 500
  internal,      // our own fault                                       exit 1,  HTTP 500
};

const char* code_name(Code code);
int exit_code(Code code);
int http_status(Code code);

struct Error {
  Code code = Code::internal;
  std::string message;  // what was attempted, on what, why not, what to do
};

template <typename T>
class [[nodiscard]] Result {
 public:
  // NOLINTBEGIN(google-explicit-constructor): a function returns either of the two as it is.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  // NOLINTEND(google-explicit-constructor)

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  T& operator*() { return std::get<0>(state_); }
  const T& operator*() const { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  Error& error() { return std::get<1>(state_); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : error_(std::move(error)) {}

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  void value() const {}
  Error& error() { return *error_; }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

inline Error invalid(std::string message) { return {Code::invalid, std::move(message)}; }
inline Error not_found(std::string message) { return {Code::not_found, std::move(message)}; }
inline Error unavailable(std::string message) { return {Code::unavailable, std::move(message)}; }
inline Error timed_out(std::string message) { return {Code::timed_out, std::move(message)}; }
inline Error corrupt(std::string message) { return {Code::corrupt, std::move(message)}; }
inline Error internal_error(std::string message) { return {Code::internal, std::move(message)}; }
inline Error does_not_fit(std::string message) { return {Code::does_not_fit, std::move(message)}; }

// "load weights: " + the error, with its code.
inline Error operator+(const std::string& context, Error error) {
  error.message.insert(0, context);
  return error;
}

namespace detail {
template <typename T>
T take(Result<T>& result) {
  return std::move(*result);
}
inline void take(Status&) {}
}  // namespace detail

}  // namespace plimsoll

// TRY(expr): the value of a Result, or return its error from the enclosing function.
// TRY_CONTEXT(context, expr): the same, with words of context before the message.
#define TRY(expr) TRY_CONTEXT(std::string{}, expr)
#define TRY_CONTEXT(context, expr)                                       \
  __extension__({                                                        \
    auto try_result_ = (expr);                                           \
    if (!try_result_) return (context) + std::move(try_result_.error()); \
    ::plimsoll::detail::take(try_result_);                               \
  })
