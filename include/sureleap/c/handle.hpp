// SPDX-License-Identifier: MIT
//
// How C calls reach C++ objects: objects in memory of the caller's that know whether they live, and errors that become
// a result and a text at the boundary, which nothing is thrown across.
//
// A handle keeps a mark that depends on its kind and its address. So null, another kind, a copy of the bytes and an
// object that was destroyed are told from one that lives, for as long as the memory is the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <sureleap/c/common.h>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/workspace.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace c {

/// An error with the result that it becomes. A sureleap::error of any other kind is an invalid argument.
class failure : public error {
public:
    failure(sureleap_result code, std::string const& text) : error(text), code_(code) {}
    [[nodiscard]] sureleap_result code() const noexcept { return code_; }

private:
    sureleap_result code_;
};

template <class... Parts>
[[noreturn, gnu::cold]] void fail_as(sureleap_result code, Parts... parts) {
    std::string const text = detail::joined({parts...});
#if SURELEAP_EXCEPTIONS
    throw failure(code, text);
#else
    static_cast<void>(code);
    detail::throw_error(text);
#endif
}

/// Runs a call and makes a result of what it throws; `report(code, text)` keeps the text. Without exceptions an error
/// prints its text and aborts, as it does everywhere in the library.
template <class Call, class Report>
[[nodiscard]] sureleap_result guarded(Call const& call, Report const& report) noexcept {
#if SURELEAP_EXCEPTIONS
    auto const told = [&](sureleap_result code, char const* text) {
        report(code, text);
        return code;
    };
    try {
        call();
    } catch (failure const& e) {
        return told(e.code(), e.what());
    } catch (std::bad_alloc const&) {
        return told(SURELEAP_NO_MEMORY, "the heap is exhausted");
    } catch (std::exception const& e) {
        return told(SURELEAP_INVALID_ARGUMENT, e.what());
    }
#else
    static_cast<void>(report);
    call();
#endif
    return SURELEAP_OK;
}

/// The text of a size that a texts' buffer has, cut where it is full.
inline void keep_text(char* buffer, std::size_t size, char const* text) noexcept {
    std::snprintf(buffer, size, "%s", text);
}
/// Reports to a sureleap_error, which may be null.
[[nodiscard]] inline auto to_error(sureleap_error* error) noexcept {
    return [error](sureleap_result code, char const* text) {
        if (error == nullptr) return;
        error->code = code;
        keep_text(error->text, sizeof error->text, text);
    };
}

/// What every object begins with. `Self` is the object's own type: sureleap_round and its like.
template <class Self>
class handle {
public:
    handle() noexcept : mark_(mark_of(this)) {}
    handle(handle const&) = delete;
    handle& operator=(handle const&) = delete;
    ~handle() { static_cast<std::uint64_t volatile&>(mark_) = 0; }  // outlives the object: nobody may optimise it away

    /// Such an object lives at `p`. Memory that `p` points to must be readable.
    [[nodiscard]] static bool lives(Self const* p) noexcept {
        if (p == nullptr || reinterpret_cast<std::uintptr_t>(p) % alignof(Self) != 0) return false;
        return static_cast<std::uint64_t const volatile&>(p->head.mark_) == mark_of(&p->head);
    }

    /// Of the last call that failed.
    [[nodiscard]] char const* text() const noexcept { return text_; }
    [[nodiscard]] auto report() noexcept {
        return [this](sureleap_result, char const* text) { keep_text(text_, sizeof text_, text); };
    }

private:
    [[nodiscard]] static std::uint64_t mark_of(void const* at) noexcept {
        return (static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(at)) ^ Self::kind) * 0x9E3779B97F4A7C15u;
    }

    std::uint64_t mark_;
    char text_[504] = {};
};

/// The first aligned place in memory of the caller's; throws if it does not hold `needed` bytes from there on.
[[nodiscard]] inline std::byte* placed(char const* who, void* memory, std::size_t bytes, std::size_t needed) {
    if (memory == nullptr) fail_with(who, ": memory is null, expected ", needed, " bytes");
    void* at = memory;
    std::size_t left = bytes;
    if (std::align(workspace::alignment, needed - workspace::alignment, at, left) == nullptr) {
        fail_as(SURELEAP_NO_MEMORY, who, ": memory has ", bytes, " bytes, expected ", needed);
    }
    return static_cast<std::byte*>(at);
}
/// Bytes of an object that may have to be moved to an aligned place.
template <class Object>
inline constexpr std::size_t bytes_of =
    (sizeof(Object) + workspace::alignment - 1) / workspace::alignment * workspace::alignment + workspace::alignment;

/// A call of an object: refuses one that does not live, keeps the text of what fails in it.
template <class Self, class Call>
[[nodiscard]] sureleap_result on(Self* object, Call const& call) noexcept {
    if (!handle<Self>::lives(object)) return SURELEAP_INVALID_HANDLE;
    return guarded([&] { call(*object); }, object->head.report());
}
template <class Self>
[[nodiscard]] sureleap_result destroyed(Self* object) noexcept {
    if (!handle<Self>::lives(object)) return SURELEAP_INVALID_HANDLE;
    object->~Self();
    return SURELEAP_OK;
}
template <class Self>
[[nodiscard]] char const* text_of(Self const* object) noexcept {
    return handle<Self>::lives(object) ? object->head.text()
                                       : "sureleap: no object of this kind lies here, or it was destroyed";
}

// ---- arguments -------------------------------------------------------------------------------------------------

template <class Pointer>
void expect_given(char const* who, char const* what, Pointer const* pointer) {
    if (pointer == nullptr) fail_with(who, ": ", what, " is null, expected a pointer");
}
/// `options` is not null and of this version.
template <class Options>
void expect_options(char const* who, Options const* options) {
    expect_given(who, "options", options);
    if (options->struct_size != sizeof(Options)) {
        fail_with(who, ": struct_size is ", options->struct_size, ", expected ", sizeof(Options),
                  "; call the init function of the options, compiled with the same header");
    }
}
inline void expect_choice(char const* who, char const* what, std::int32_t value, std::int32_t last) {
    if (value < 0 || value > last) fail_with(who, ": ", what, " is ", value, ", expected 0 .. ", last);
}
inline void expect_size(char const* who, char const* what, std::size_t value, std::size_t least, std::size_t most) {
    if (value < least || value > most) {
        fail_with(who, ": ", what, " is ", value, ", expected ", least, " .. ", most);
    }
}
/// Numbers of this type may be read at `pointer`.
inline void expect_aligned(char const* who, char const* what, void const* pointer, std::size_t alignment) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0) {
        fail_with(who, ": ", what, " lies at an address that is no multiple of ", alignment,
                  ", the size of its numbers");
    }
}

}  // namespace c
SURELEAP_END_NAMESPACE
