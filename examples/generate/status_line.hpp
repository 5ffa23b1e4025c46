// SPDX-License-Identifier: MIT
//
// One line on a terminal that says what the program is doing, for as long as it does it.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include <unistd.h>

namespace generate {

/// Shown on stderr, and only if that is a terminal: what is redirected to a file stays free of it. Redrawn at most ten
/// times a second; gone when the object is.
class status_line {
public:
    status_line() : terminal_(::isatty(STDERR_FILENO) == 1) {}
    ~status_line() { clear(); }
    status_line(status_line const&) = delete;
    status_line& operator=(status_line const&) = delete;

    /// Shows what `text()` returns, if it is time to: the text is not even made if nobody would see it.
    template <class F>
    void update(F const& text) {
        auto const now = std::chrono::steady_clock::now();
        if (!terminal_ || now < next_) return;
        next_ = now + std::chrono::milliseconds(100);
        // Cut, because a line that wraps cannot be redrawn.
        std::fprintf(stderr, "\r%.79s\x1b[K", std::string(text()).c_str());
        std::fflush(stderr);
        shown_ = true;
    }
    void clear() {
        if (!shown_) return;
        std::fputs("\r\x1b[K", stderr);
        std::fflush(stderr);
        shown_ = false;
        next_ = {};
    }

private:
    bool terminal_;
    bool shown_ = false;
    std::chrono::steady_clock::time_point next_{};
};

}  // namespace generate
