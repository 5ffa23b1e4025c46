// SPDX-License-Identifier: MIT
//
// What programs of several ranks check, and how one of them is lost.
#pragma once

#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include <sureleap/ext/mpi.hpp>

namespace support {

/// Ends all ranks if it does not hold.
inline void expect(bool holds, char const* what, unsigned long long number = 0) {
    if (holds) return;
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::fprintf(stderr, "rank %d: %s (%llu)\n", rank, what, number);
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();
}

/// Rank 0 says that all but rank 1, which was lost, have come here. Ends by _exit, since MPI_Finalize would wait for
/// rank 1.
[[noreturn]] inline void end_without_rank_1(sureleap::mpi_ranks const& ranks) {
    int told = 1;
    if (ranks.rank() > 1) MPI_Send(&told, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    for (int i = 2; ranks.rank() == 0 && i < static_cast<int>(ranks.size()); ++i) {
        MPI_Recv(&told, 1, MPI_INT, i, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (ranks.rank() == 0) std::puts("every other rank was told in time");
    std::fflush(nullptr);
    _exit(0);
}
/// Stops this process for eight seconds.
inline void be_stopped() {
    pid_t const self = getpid();
    if (fork() == 0) {  // who wakes it
        sleep(8);
        kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
}

}  // namespace support
