// Kinds of slices. Generated from crates/index/src/slice_kind.rs by its test; do not edit.

/** Kind of slice, by its number in answers. */
export const Style = {
  /** State that no event tells. */
  unknown: 0,
  /** CPU without a thread to run. */
  idle: 1,
  /** Thread on a CPU, or CPU that runs a thread. */
  running: 2,
  /** Thread that was woken and waits for a CPU. */
  runnable: 3,
  /** Thread that is ready to run and had its CPU taken by another one. */
  runnablePreempted: 4,
  /** Thread in interruptible sleep. */
  sleeping: 5,
  /** Thread in a sleep that signals do not end. */
  uninterruptible: 6,
  /** Thread that is stopped or traced. */
  stopped: 7,
  /** Thread that was created and not yet woken. */
  created: 8,
  /** System call. */
  syscall: 9,
  /** Interrupt handler. */
  interrupt: 10,
  /** Softirq. */
  softirq: 11,
  /** Span. */
  span: 12,
  /** Function. */
  function: 13,
  /** Event. */
  mark: 14,
  /** Discarded events. */
  lost: 15,
  /** Events that a flight recorder overwrote. */
  overwritten: 16,
  /** Job that met its deadline. */
  job: 17,
  /** Job that missed its deadline. */
  lateJob: 18,
  /** Values of a counter; not sent as slices. */
  counter: 19,
  /** Event counts; not sent as slices. */
  density: 20,
} as const;
