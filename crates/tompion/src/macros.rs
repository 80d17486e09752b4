//! The macros that users write.
//!
//! `event!(level: Warning, "db", "slow", rows = n)` becomes
//!
//! ```text
//! match { struct Event; impl Described for Event { … }  Probe::<Event, _>::new() } {
//!     probe => if let Some(taken) = probe.taken() {
//!         match Cons(&n, Nil) { fields => taken.record(&fields) }
//!     }
//! }
//! ```
//!
//! The values stand where none of the macro's own items is in scope, and within a `match`, so that
//! their temporaries live as long as the event. They are no part of a closure: `?` and `.await`
//! work in them.
//!
//! Macros whose names begin with `__` are steps of the others.

/// Records an event: `event!("provider", "name", field = value, …)`.
///
/// Provider and name are constant expressions of type `&'static str`; a provider has no colon. A
/// field is
///
/// - `name = value`, where the value is of any type that is a [`Field`](crate::Field);
/// - `name` alone, for a variable of that name;
/// - `name = { field, … }`, a structure (a block as a value needs parentheses around it).
///
/// Names are ASCII identifiers, keywords too; each is used once. Before the provider may stand
/// `level: LEVEL,` with the name of a [`Level`](crate::Level), and `init,` for what belongs to the
/// program's initial state, which flight recorders keep.
///
/// ```
/// # let (name, t, x, y) = ("orders", 0.7, 1, 2);
/// let rows = 3_u64;
/// tompion::event!("db", "query_done", rows, table = name, ms = t);
/// tompion::event!(level: Warning, "robot", "lost", at = { x, y }, path = &[1u16, 2, 3][..]);
/// ```
///
/// While no recording takes the event, this is a load and a branch, and no value is computed; so
/// keep side effects out of values. While one does, each value is computed once, in order, and the
/// record is copied into a ring: no lock, no system call, no allocation.
///
/// The compiler refuses more than 512 bytes of fields of fixed size, and descriptions (names, types
/// and labels) of more than 8 KiB. A record is at most 64 KiB long and at most half a sub-buffer;
/// larger ones are counted as lost.
///
/// Usable from any thread, in signal handlers, and in generic functions, where each instance
/// describes its own types.
#[macro_export]
macro_rules! event {
    ($($tokens:tt)+) => { $crate::__attributes!(__event [DebugLine false] $($tokens)+) };
}

/// Whether a recording takes an event: `enabled!("provider", "name")`. For values that are costly
/// to prepare.
///
/// ```
/// # fn plan_to_text() -> String { String::new() }
/// if tompion::enabled!("db", "plan") {
///     let text = plan_to_text();
///     tompion::event!("db", "plan", text);
/// }
/// ```
#[macro_export]
macro_rules! enabled {
    ($provider:expr, $name:expr $(,)?) => {
        match $crate::__probe!($crate::private::Outline {
            asks: true,
            ..$crate::private::Outline::new($crate::private::Kind::Instant, $provider, $name)
        }) {
            probe => $crate::private::Probe::<_, $crate::private::Nil>::is_enabled(probe),
        }
    };
}

/// Begins a span that ends when the returned [`Span`](crate::Span) is dropped:
/// `let _span = span!("provider", "name", field = value, …)`.
///
/// Two events, `name_begin` with the fields, and `name_end`; recording `provider:name` takes both.
/// The end is recorded only if the beginning was. Attributes and fields are those of
/// [`event!`](crate::event).
///
/// ```
/// fn query(table: &str) -> Result<u32, String> {
///     let _span = tompion::span!("db", "query", table);
///     // Whichever way the function is left, also by a panic, the span ends.
///     "17".parse().map_err(|_| "no number".to_owned())
/// }
/// # query("orders").unwrap();
/// ```
#[macro_export]
macro_rules! span {
    ($($tokens:tt)+) => { $crate::__attributes!(__span [DebugLine false] $($tokens)+) };
}

/// Begins a span that [`end!`](crate::end) ends, for spans that are no scope:
/// `begin!("provider", "name", field = value, …)`.
///
/// Both belong to the thread that they run on.
///
/// ```
/// tompion::begin!("db", "transaction", number = 5);
/// tompion::end!("db", "transaction");
/// ```
#[macro_export]
macro_rules! begin {
    ($($tokens:tt)+) => { $crate::__attributes!(__begin [DebugLine false] $($tokens)+) };
}

/// Ends the thread's innermost span of the name, see [`begin!`](crate::begin). It may have fields.
#[macro_export]
macro_rules! end {
    ($($tokens:tt)+) => { $crate::__attributes!(__end [DebugLine false] $($tokens)+) };
}

/// Records the new value of a quantity: `counter!("provider", "name", value)`.
///
/// The value is an integer or a float.
///
/// ```
/// # let queue = [1, 2, 3];
/// tompion::counter!("db", "depth", queue.len());
/// ```
#[macro_export]
macro_rules! counter {
    ($($tokens:tt)+) => { $crate::__attributes!(__counter [DebugLine false] $($tokens)+) };
}

/// Records one step of a flow across threads and processes: `flow!("provider", "name", id)`.
///
/// The steps with one id are one flow. The id is an integer or an address.
///
/// ```
/// # let order = 17_u32;
/// tompion::flow!("shop", "order", order);
/// ```
#[macro_export]
macro_rules! flow {
    ($($tokens:tt)+) => { $crate::__attributes!(__flow [DebugLine false] $($tokens)+) };
}

/// Begins one activation of a periodic job, which ends when the returned [`Span`](crate::Span) is
/// dropped: `let _job = job!("provider", "name", deadline: time, field = value, …)`.
///
/// The deadline is the time allowed from beginning to end, a `Duration` or a number of nanoseconds
/// (`u64`); 0 is none.
///
/// ```
/// use std::time::Duration;
/// # let number = 1;
/// let _job = tompion::job!("control", "cycle", deadline: Duration::from_millis(1), number);
/// ```
#[macro_export]
macro_rules! job {
    ($($tokens:tt)+) => { $crate::__attributes!(__job [DebugLine false] $($tokens)+) };
}

/// Records a mark, a line of text whose arguments are recorded in binary:
/// `mark!("name", "format", argument, …)`.
///
/// The event is `mark:name`. Its fields are called by the words before them in the format, here
/// `rows` and `table`; readers make the text when they show it.
///
/// ```
/// # let (n, name) = (3, "orders");
/// tompion::mark!("loaded", "rows {} table {:?}, {:.1} %", n, name, 99.5);
/// ```
///
/// Formats are those of `format!`, as far as printf has the like: no `^`, no fill but a space, no
/// width or precision from an argument, no names in the braces. Arguments are numbers and text.
#[macro_export]
macro_rules! mark {
    ($($tokens:tt)+) => { $crate::__attributes!(__mark [DebugLine false] $($tokens)+) };
}

/// Takes `level: LEVEL,` and `init,` from the front and goes on with a macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __attributes {
    ($then:ident [$level:ident $init:ident] level: $new:ident, $($rest:tt)+) => {
        $crate::__attributes!($then [$new $init] $($rest)+)
    };
    ($then:ident [$level:ident $init:ident] init, $($rest:tt)+) => {
        $crate::__attributes!($then [$level true] $($rest)+)
    };
    ($then:ident [$level:ident $init:ident] $($rest:tt)+) => {
        $crate::$then!([$level $init] $($rest)+)
    };
}

/// The probe of an event with this outline.
#[doc(hidden)]
#[macro_export]
macro_rules! __probe {
    ($kind:ident [$level:ident $init:ident] $provider:expr, $name:expr, $names:expr) => {
        $crate::__probe!($crate::private::Outline {
            level: $crate::Level::$level,
            init: $init,
            names: $names,
            ..$crate::private::Outline::new($crate::private::Kind::$kind, $provider, $name)
        })
    };
    ($outline:expr) => {{
        struct TompionEvent;
        impl $crate::private::Described for TompionEvent {
            const OUTLINE: $crate::private::Outline = $outline;
        }
        const _: () = $crate::private::check(&<TompionEvent as $crate::private::Described>::OUTLINE);
        $crate::private::Probe::<TompionEvent, _>::new()
    }};
}

/// Records the probe's event with these values, if a recording takes it.
#[doc(hidden)]
#[macro_export]
macro_rules! __record {
    ($probe:expr, $values:expr) => {
        match $probe {
            probe => {
                if let $crate::private::Some(taken) = probe.taken() {
                    match $values {
                        values => taken.record(&values),
                    }
                }
            }
        }
    };
}

/// Records an event, and the span that it begins.
#[doc(hidden)]
#[macro_export]
macro_rules! __record_span {
    ($probe:expr, $values:expr, $end:expr) => {
        match $probe {
            probe => {
                if let $crate::private::Some(taken) = probe.taken() {
                    let recordings = match $values {
                        values => taken.begin(&values),
                    };
                    $crate::Span::begun(recordings, $end)
                } else {
                    $crate::Span::none()
                }
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __event {
    ($attributes:tt $provider:expr, $name:expr $(, $($fields:tt)*)?) => {
        $crate::__record!(
            $crate::__probe!(Instant $attributes $provider, $name, $crate::__names!($($($fields)*)?)),
            $crate::__values!($($($fields)*)?)
        )
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __begin {
    ($attributes:tt $provider:expr, $name:expr $(, $($fields:tt)*)?) => {
        $crate::__record!(
            $crate::__probe!(Begin $attributes $provider, $name, $crate::__names!($($($fields)*)?)),
            $crate::__values!($($($fields)*)?)
        )
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __end {
    ($attributes:tt $provider:expr, $name:expr $(, $($fields:tt)*)?) => {
        $crate::__record!(
            $crate::__probe!(End $attributes $provider, $name, $crate::__names!($($($fields)*)?)),
            $crate::__values!($($($fields)*)?)
        )
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __span {
    ($attributes:tt $provider:expr, $name:expr $(, $($fields:tt)*)?) => {
        $crate::__record_span!(
            $crate::__probe!(Begin $attributes $provider, $name, $crate::__names!($($($fields)*)?)),
            $crate::__values!($($($fields)*)?),
            $crate::__probe!(End $attributes $provider, $name, $crate::__names!())
        )
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __job {
    ($attributes:tt $provider:expr, $name:expr, deadline: $deadline:expr $(, $($fields:tt)*)?) => {
        $crate::__record_span!(
            $crate::__probe!(
                Job $attributes $provider, $name,
                $crate::__names!(deadline_ns = (), $($($fields)*)?)
            ),
            $crate::private::Cons(
                $crate::private::Deadline::nanoseconds($deadline),
                $crate::__values!($($($fields)*)?)
            ),
            $crate::__probe!(End $attributes $provider, $name, $crate::__names!())
        )
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __counter {
    ($attributes:tt $provider:expr, $name:expr, $value:expr $(,)?) => {
        $crate::__record!(
            $crate::__probe!(Counter $attributes $provider, $name, $crate::__names!(value = ())),
            $crate::private::Cons($crate::private::Quantity::quantity(&$value), $crate::private::Nil)
        )
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __flow {
    ($attributes:tt $provider:expr, $name:expr, $id:expr $(,)?) => {
        $crate::__record!(
            $crate::__probe!(Flow $attributes $provider, $name, $crate::__names!(id = ())),
            $crate::private::Cons(
                $crate::hex($crate::private::Identity::identity(&$id)),
                $crate::private::Nil
            )
        )
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __mark {
    ([$level:ident $init:ident] $name:expr, $format:expr $(, $($arguments:expr),*)? $(,)?) => {
        $crate::__record!(
            $crate::__probe!($crate::private::Outline {
                level: $crate::Level::$level,
                init: $init,
                names: $crate::private::Names::Numbered,
                format: $crate::private::Some($format),
                ..$crate::private::Outline::new($crate::private::Kind::Mark, "mark", $name)
            }),
            $crate::__arguments!($($($arguments,)*)?)
        )
    };
}

/// The names of fields.
#[doc(hidden)]
#[macro_export]
macro_rules! __names {
    ($($fields:tt)*) => { $crate::private::Names::Given($crate::__name!($($fields)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __name {
    () => { $crate::private::None };
    ($name:ident = { $($members:tt)+ } $(, $($rest:tt)*)?) => {
        $crate::private::Some(&$crate::private::Name {
            name: stringify!($name),
            members: $crate::__name!($($members)+),
            next: $crate::__name!($($($rest)*)?),
        })
    };
    ($name:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::private::Some(&$crate::private::Name {
            name: stringify!($name),
            members: $crate::private::None,
            next: $crate::__name!($($($rest)*)?),
        })
    };
    ($name:ident $(, $($rest:tt)*)?) => {
        $crate::private::Some(&$crate::private::Name {
            name: stringify!($name),
            members: $crate::private::None,
            next: $crate::__name!($($($rest)*)?),
        })
    };
}

/// The values of fields, as a list.
#[doc(hidden)]
#[macro_export]
macro_rules! __values {
    () => { $crate::private::Nil };
    ($name:ident = { $($members:tt)+ } $(, $($rest:tt)*)?) => {
        $crate::private::Cons(
            $crate::private::Structure($crate::__values!($($members)+)),
            $crate::__values!($($($rest)*)?)
        )
    };
    ($name:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::private::Cons(&$value, $crate::__values!($($($rest)*)?))
    };
    ($name:ident $(, $($rest:tt)*)?) => {
        $crate::private::Cons(&$name, $crate::__values!($($($rest)*)?))
    };
}

/// The values of a mark's arguments, as a list.
#[doc(hidden)]
#[macro_export]
macro_rules! __arguments {
    () => { $crate::private::Nil };
    ($first:expr, $($rest:tt)*) => {
        $crate::private::Cons(&$first, $crate::__arguments!($($rest)*))
    };
}
