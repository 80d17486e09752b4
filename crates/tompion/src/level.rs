/// Levels of events, those of LTTng, the most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// The system is unusable.
    Emergency = 0,
    /// Something must be done at once.
    Alert = 1,
    /// Critical conditions.
    Critical = 2,
    /// Errors.
    Error = 3,
    /// Warnings.
    Warning = 4,
    /// Normal, but significant.
    Notice = 5,
    /// Information.
    Info = 6,
    /// Debugging, of the whole system.
    DebugSystem = 7,
    /// Debugging, of a program.
    DebugProgram = 8,
    /// Debugging, of a process.
    DebugProcess = 9,
    /// Debugging, of a module.
    DebugModule = 10,
    /// Debugging, of a unit of compilation.
    DebugUnit = 11,
    /// Debugging, of a function.
    DebugFunction = 12,
    /// Debugging, of a line: what an event has that says nothing.
    DebugLine = 13,
    /// Debugging, of anything.
    Debug = 14,
}
