// SPDX-License-Identifier: MIT
#include "process_ranks.hpp"

#include <mpi.h>

#include <cstdlib>
#include <optional>

#include <sureleap/core/error.hpp>
#include <sureleap/ext/mpi.hpp>

namespace generate {
namespace {

// Outputs of some tens of rows at a time: prompts go through in several exchanges, rounds in one.
constexpr std::size_t most_bytes = std::size_t{1} << 20;

class mpi_processes final : public process_ranks {
public:
    explicit mpi_processes(double seconds) {
        // The first thread calls MPI; those of the pool do not.
        int given = MPI_THREAD_SINGLE;
        if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given) != MPI_SUCCESS ||
            given < MPI_THREAD_FUNNELED) {
            sureleap::fail_with("MPI_Init_thread: thread support is ", given, ", expected MPI_THREAD_FUNNELED");
        }
        int size = 1;
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        if (size == 1) return;
        MPI_Comm here = MPI_COMM_NULL;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
        MPI_Comm_size(here, &here_);
        MPI_Comm_free(&here);
        connected_.emplace(MPI_COMM_WORLD, sureleap::mpi_ranks_options{.most_bytes = most_bytes, .seconds = seconds});
        ranks_.emplace(*connected_, most_bytes);
    }
    ~mpi_processes() override {
        connected_.reset();
        MPI_Finalize();
    }

    engine::any_ranks* ranks() noexcept override { return ranks_ ? &*ranks_ : nullptr; }
    std::size_t on_this_machine() const noexcept override { return static_cast<std::size_t>(here_); }
    void abandon() noexcept override {
        if (ranks_) MPI_Abort(MPI_COMM_WORLD, 2);
    }

private:
    int here_ = 1;
    std::optional<sureleap::mpi_ranks> connected_;
    std::optional<engine::any_ranks> ranks_;
};

}  // namespace

std::unique_ptr<process_ranks> meet_processes(double seconds) {
    return std::make_unique<mpi_processes>(seconds);
}

}  // namespace generate
