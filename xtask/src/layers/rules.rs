//! The rules as tables. Names are without the `tompion-` prefix.

/// The prefix of the crates' names.
pub const PREFIX: &str = "tompion-";

/// Crates that may know everything below, and of each other only what [`SAME_LAYER`] lists.
pub struct Layer {
    /// Name in ARCHITECTURE.md.
    pub name: &'static str,
    /// Its crates.
    pub crates: &'static [&'static str],
}

/// The layers, from the bottom.
pub const LAYERS: &[Layer] = &[
    Layer { name: "contracts", crates: &["layout", "schema", "filter", "counts", "protocol", "units"] },
    Layer {
        name: "mechanisms",
        crates: &[
            "ring",
            "os",
            "ctf",
            "http",
            "histogram",
            "counting",
            "plot",
            "syscalls",
            "manifest",
            "chunks",
            "triggers",
            "writer",
            "jobs",
            "clock",
            "watchdog",
            "varlink",
            "control",
            "programs",
            "grants",
            "keeper",
            "kernel-objects",
            "installation",
            "marks",
            "testing",
        ],
    },
    Layer {
        name: "domain",
        crates: &[
            "agent",
            "tompion",
            "tracing",
            "session",
            "restart-state",
            "lineage",
            "intake",
            "firings",
            "calls",
            "context",
            "kernel-context",
            "kernel-trace",
            "running",
            "kernel",
            "latency",
            "history",
            "injector",
            "machine",
            "rttest",
            "report",
            "supervisor",
            "reader",
            "analysis",
            "export",
            "index",
            "viewer",
            "segments",
            "receiver",
            "shipper",
            "live",
        ],
    },
    Layer { name: "programs", crates: &["cli", "remote", "status", "terminal", "xtask", "bench", "tasks"] },
];

/// An edge within a layer, and why it is there.
pub struct Edge {
    /// The crate that depends.
    pub from: &'static str,
    /// The crate that it depends on.
    pub to: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// The edges within a layer.
pub const SAME_LAYER: &[Edge] = &[
    Edge { from: "filter", to: "schema", reason: "filters are bound to the fields of events" },
    Edge { from: "counts", to: "filter", reason: "events are counted that pass a filter" },
    Edge { from: "counts", to: "layout", reason: "a rule says how much memory its channel takes" },
    Edge { from: "marks", to: "installation", reason: "programs are given the path of a library" },
    Edge { from: "marks", to: "os", reason: "files of any size are read in parts" },
    Edge { from: "counting", to: "histogram", reason: "histograms have its buckets" },
    Edge { from: "counting", to: "os", reason: "count files are mapped, and read where they have pages" },
    Edge { from: "protocol", to: "schema", reason: "rules choose events by their level" },
    Edge { from: "tracing", to: "tompion", reason: "a bridge to the events of Rust programs" },
    Edge { from: "session", to: "calls", reason: "other programs ask recorders" },
    Edge { from: "calls", to: "firings", reason: "changes of triggers, and programs that watch them" },
    Edge { from: "calls", to: "context", reason: "filters of new rules may ask for context" },
    Edge { from: "calls", to: "kernel-trace", reason: "a choice of kernel events is checked" },
    Edge { from: "session", to: "firings", reason: "triggers fire by what recordings observe" },
    Edge { from: "session", to: "intake", reason: "programs ask to take part, within limits" },
    Edge { from: "intake", to: "lineage", reason: "processes that may be asked are listed there" },
    Edge { from: "session", to: "kernel-trace", reason: "the kernel is recorded beside the programs" },
    Edge { from: "kernel-trace", to: "kernel", reason: "its rings are drained" },
    Edge { from: "kernel-trace", to: "restart-state", reason: "its chunks go on after a restart" },
    Edge { from: "session", to: "context", reason: "events get the context of their threads" },
    Edge { from: "kernel-trace", to: "kernel-context", reason: "the kernel's events get context and stacks" },
    Edge {
        from: "kernel-trace",
        to: "lineage",
        reason: "executed programs are known from the kernel's events",
    },
    Edge { from: "kernel-context", to: "kernel", reason: "it adds to the kernel's records" },
    Edge { from: "kernel-context", to: "lineage", reason: "processes whose memory is read are listed there" },
    Edge { from: "restart-state", to: "lineage", reason: "a process's origin is kept with it" },
    Edge { from: "session", to: "restart-state", reason: "chunks go on after a restart" },
    Edge { from: "session", to: "lineage", reason: "origins of recorded processes stand in the manifest" },
    Edge { from: "session", to: "running", reason: "a manifest names its recorder" },
    Edge { from: "running", to: "lineage", reason: "recorders are told apart by what /proc says of them" },
    Edge { from: "lineage", to: "kernel", reason: "executed programs are known from the kernel's events" },
    Edge {
        from: "latency",
        to: "kernel",
        reason: "what stands in the way of programs is known there, and functions' names",
    },
    Edge { from: "history", to: "latency", reason: "what the monitor counted is what is kept" },
    Edge {
        from: "injector",
        to: "kernel",
        reason: "what stands in the way of programs is known there, and functions' names",
    },
    Edge { from: "export", to: "reader", reason: "what is rewritten was read" },
    Edge { from: "analysis", to: "reader", reason: "what events mean is found while they are read" },
    Edge { from: "index", to: "reader", reason: "an index is made of a trace's events" },
    Edge { from: "index", to: "analysis", reason: "lanes have the states that are derived there" },
    Edge { from: "viewer", to: "index", reason: "lanes are answered from the index" },
    Edge { from: "viewer", to: "reader", reason: "what is shown was read" },
    Edge { from: "viewer", to: "analysis", reason: "states are drawn" },
    Edge { from: "viewer", to: "export", reason: "what is selected is written as a trace" },
    Edge { from: "receiver", to: "segments", reason: "what is received and stored is a segment" },
    Edge { from: "live", to: "segments", reason: "recordings and their names are found there" },
    Edge { from: "shipper", to: "segments", reason: "what is sent is a segment" },
    Edge { from: "rttest", to: "reader", reason: "losses are told by the trace itself" },
    Edge { from: "report", to: "rttest", reason: "results are what a report shows" },
    Edge { from: "report", to: "machine", reason: "a report names the machine and its settings" },
    Edge { from: "cli", to: "terminal", reason: "messages and exit codes" },
    Edge { from: "cli", to: "status", reason: "running recordings as text" },
    Edge { from: "cli", to: "remote", reason: "three of its commands" },
    Edge { from: "remote", to: "terminal", reason: "messages" },
    Edge { from: "status", to: "terminal", reason: "styles, and what is escaped" },
    Edge { from: "xtask", to: "tasks", reason: "artifacts, commands and tables" },
    Edge { from: "bench", to: "tasks", reason: "artifacts, commands and tables" },
    Edge { from: "manifest", to: "os", reason: "the file is read and replaced below its folder's handle" },
    Edge { from: "writer", to: "ctf", reason: "packets and metadata are encoded there" },
    Edge { from: "writer", to: "manifest", reason: "a trace from memory has a manifest as well" },
    Edge { from: "writer", to: "os", reason: "files are made below the handle of the trace's folder" },
    Edge { from: "chunks", to: "os", reason: "chunks are renamed and removed below their folder's handle" },
    Edge { from: "jobs", to: "os", reason: "processes have numbers, and clocks are compared" },
    Edge { from: "watchdog", to: "os", reason: "threads are moved by their affinity" },
    Edge { from: "clock", to: "os", reason: "pairs of both clocks are sampled there" },
    Edge { from: "varlink", to: "os", reason: "the kernel tells the user at the other end" },
    Edge { from: "control", to: "varlink", reason: "the interface of recordings is one of varlink" },
    Edge { from: "control", to: "manifest", reason: "a firing tells of events as the manifest does" },
    Edge { from: "control", to: "os", reason: "sockets stand in a folder that is locked and held open" },
    Edge {
        from: "programs",
        to: "os",
        reason: "the kernel tells which programs there are, by their processes",
    },
    Edge { from: "grants", to: "os", reason: "users have numbers, and files owners" },
    Edge { from: "keeper", to: "os", reason: "descriptors are passed on by its sockets" },
    Edge { from: "kernel-objects", to: "os", reason: "maps are mapped and programs detached there" },
    Edge { from: "ring", to: "os", reason: "a ring lives in mapped memory, its section in the rseq area" },
];

/// The library inside other people's processes.
pub const AGENT: &str = "agent";
/// All that the agent may depend on.
pub const AGENT_SEES: &[&str] =
    &["layout", "schema", "filter", "counts", "histogram", "protocol", "ring", "os"];

/// Foreign packages that the agent may use, with the reason.
pub const AGENT_TAKES: &[(&str, &str)] =
    &[("dlmalloc", "a heap of its own: the host's may be traced, replaced, broken or in use")];

/// Crates that depend on nothing, because they are linked into everybody's programs.
pub const ALONE: &[&str] = &["tompion"];

/// Crates that see traces only.
pub const READ_SIDE: &[&str] = &["reader", "analysis", "export", "index", "viewer"];
/// Crate that the read side never sees.
pub const RING: &str = "ring";

/// Crates that are programs.
pub const PROGRAMS: &[&str] = &["cli", "xtask", "bench"];

/// Crates that may contain `unsafe`.
pub const UNSAFE_IN: &[&str] = &["ring", "os", "agent", "tompion"];

/// A package that only some crates may use.
pub struct External {
    /// The package.
    pub package: &'static str,
    /// Crates that may use it.
    pub crates: &'static [&'static str],
    /// Reason why no other may.
    pub reason: &'static str,
}

/// Packages with an owner.
pub const EXTERNAL_ONLY_IN: &[External] = &[
    External { package: "libc", crates: &["os"], reason: "os is the sole caller of libc" },
    External {
        package: "tompion-injector",
        crates: &[],
        reason: "delays on purpose are for tests and benchmarks (dev-dependencies)",
    },
];

/// Most lines of a source file.
pub const MAX_LINES: usize = 800;
/// Most lines of the source files of a crate, unit tests aside.
pub const MAX_CRATE_LINES: usize = 10_000;
/// Folders with sources.
pub const SOURCE_FOLDERS: &[&str] =
    &["crates", "xtask", "include", "integrations", "benches", "examples", "models", "tests", "web"];
/// Folders within them with generated or foreign files.
pub const NOT_OURS: &[&str] = &["target", "node_modules", "dist"];
/// Endings of source files.
pub const SOURCE_ENDINGS: &[&str] =
    &["rs", "c", "h", "cc", "cpp", "hpp", "py", "sh", "ts", "js", "css", "go", "java", "pml"];
