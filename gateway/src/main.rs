//! Arguments → run → exit code.

use std::process::ExitCode;

/// Chosen by measurement, beside the system's, jemalloc, and mimalloc's version 3: 2 to 8 % fewer instructions a
/// request, no more CPU time than any. Without huge pages (`no_thp`): they cost 9 MiB at rest, 17 with version 2, and
/// saved no CPU time that could be seen. docs/performance.md has the figures.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gateway::cli::main()
}
