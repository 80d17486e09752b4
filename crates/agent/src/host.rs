//! Boundary to the host program: neither a panic of the agent nor a change of `errno` crosses it.

/// Runs a function of the agent. Returns `fallback` if it panics, and restores `errno`.
pub fn protect_host<T>(fallback: T, body: impl FnOnce() -> T + std::panic::UnwindSafe) -> T {
    tompion_os::keeping_errno(|| std::panic::catch_unwind(body).unwrap_or(fallback))
}
