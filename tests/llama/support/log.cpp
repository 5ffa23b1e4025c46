// SPDX-License-Identifier: MIT
#include "log.hpp"

#include <cstddef>
#include <cstdio>
#include <mutex>
#include <string>

#include <llama.h>

#if __has_include(<catch2/reporters/catch_reporter_event_listener.hpp>)
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#else
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
namespace Catch {
using EventListenerBase = TestEventListenerBase;
}
#endif

namespace {

constexpr std::size_t longest = 1 << 20;

struct kept_log {
    std::mutex mutex;  // llama.cpp may write from any thread
    std::string text;
    bool is_kept = false;  // what a line that is continued began as
};

kept_log& kept() {
    static kept_log log;
    return log;
}

void keep(ggml_log_level level, char const* text, void*) {
    kept_log& log = kept();
    std::lock_guard const lock(log.mutex);
    if (level != GGML_LOG_LEVEL_CONT) log.is_kept = level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR;
    if (!log.is_kept) return;
    if (log.text.size() > longest) log.text.erase(0, longest / 2);
    log.text += text;
}

class listener : public Catch::EventListenerBase {
public:
    using Catch::EventListenerBase::EventListenerBase;

    void testRunStarting(Catch::TestRunInfo const&) override { llama_log_set(keep, nullptr); }
    void testCaseStarting(Catch::TestCaseInfo const&) override {
        std::lock_guard const lock(kept().mutex);
        kept().text.clear();
    }
    void testCaseEnded(Catch::TestCaseStats const& stats) override {
        if (stats.totals.assertions.failed == 0) return;
        std::fprintf(stderr, "llama.cpp's log of \"%s\":\n%s", stats.testInfo.name.c_str(),
                     support::llama_log().c_str());
    }
};

CATCH_REGISTER_LISTENER(listener)

}  // namespace

std::string support::llama_log() {
    std::lock_guard const lock(kept().mutex);
    return kept().text;
}
