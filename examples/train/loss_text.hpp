// SPDX-License-Identifier: MIT
//
// A report of losses as a progress line says it.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

#include <sureleap/training/loss_report.hpp>

namespace train {

[[nodiscard]] inline std::string in_words(sureleap::loss_report const& report) {
    char text[160];
    int const used = std::snprintf(text, sizeof text, "loss %.4f  ce %.3f  tv %.3f  tau %.3f", report.loss(),
                                   report.cross_entropy().mean(), 0.5 * report.distance().mean(), report.tau().mean());
    if (report.confidence_loss().weight > 0) {
        std::snprintf(text + used, sizeof text - static_cast<std::size_t>(used), "  confidence %.3f (off by %.3f)",
                      report.confidence_loss().mean(), report.confidence_error().mean());
    }
    return text;
}

}  // namespace train
