// SPDX-License-Identifier: MIT
//
// References to callables that an engine lends to the library. A function_ref is two pointers: no allocation, no copy
// of the callable. All callables of a signature have one type, so a part that holds one need not be a template.
//
//     task_ref          void(std::size_t)   one numbered piece of work (executor.hpp)
//     executor_ref      run(tasks, task)    threads (executor.hpp)
//     calibration_ref   double(request, k, confidence)   a map of confidences (calibration_ref.hpp)
//     clock_ref         double()            seconds (round/record.hpp)
//
// What is lent must outlive whoever holds the reference. Lending a temporary does not compile, since it would be gone
// when it is called. cost_ref (cost/views.hpp) keeps the type of what it views. A schedule asks a cost model hundreds
// of times a round, so the compiler should inline the call.
#pragma once

#include <type_traits>

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

template <class Signature>
class function_ref;

/// A view of a callable Result(Arguments...) const noexcept, which must outlive it. By default there is none.
template <class Result, class... Arguments>
class function_ref<Result(Arguments...)> {
public:
    function_ref() = default;

    template <class F>
        requires(!std::is_same_v<std::remove_const_t<F>, function_ref> && !std::is_function_v<F>)
    function_ref(F const& lent) noexcept  // NOLINT: a callable is lent where one is asked for
        : lent_(const_cast<F*>(&lent)), call_([](void* f, Arguments... arguments) noexcept -> Result {
              return static_cast<Result>((*static_cast<F const*>(f))(arguments...));
          }) {
        static_assert(
            std::is_nothrow_invocable_r_v<Result, F const&, Arguments...>,
            "function_ref: what is lent must be callable with the arguments of the signature, give its result and "
            "not throw, and say so: operator()(...) const noexcept; for a lambda, [](...) noexcept");
    }
    template <class F>
        requires(!std::is_same_v<std::remove_const_t<F>, function_ref> && !std::is_function_v<F>)
    function_ref(F const&&) = delete;  // would dangle
    /// A function, which outlives everybody.
    template <class F>
        requires std::is_function_v<F>
    function_ref(F& function) noexcept  // NOLINT: as above
        : lent_(reinterpret_cast<void*>(&function)), call_([](void* f, Arguments... arguments) noexcept -> Result {
              return static_cast<Result>(reinterpret_cast<F*>(f)(arguments...));
          }) {
        static_assert(std::is_nothrow_invocable_r_v<Result, F&, Arguments...>,
                      "function_ref: a function that is lent must have the arguments and the result of the signature, "
                      "and be noexcept");
    }

    /// An object that is called in another way: as call(object, arguments...), where `call` is a lambda without
    /// captures.
    template <class T, class Call>
    function_ref(T& object, Call) noexcept
        : lent_(const_cast<std::remove_const_t<T>*>(&object)),
          call_([](void* o, Arguments... arguments) noexcept -> Result {
              return Call{}(*static_cast<T*>(o), arguments...);
          }) {
        static_assert(std::is_empty_v<Call>,
                      "function_ref: `call` must not capture; what it needs belongs into the object");
    }

    [[nodiscard]] explicit operator bool() const noexcept { return call_ != nullptr; }
    /// Precondition: there is one.
    Result operator()(Arguments... arguments) const noexcept { return call_(lent_, arguments...); }

private:
    void* lent_ = nullptr;
    Result (*call_)(void*, Arguments...) noexcept = nullptr;
};

SURELEAP_END_NAMESPACE
