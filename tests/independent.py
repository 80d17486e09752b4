#!/usr/bin/env python3
"""Computes from the text of `tompion print` alone what `stat`, `explain` and the viewer say.

    independent.py TOMPION TRACE...

For each trace: times of threads and CPUs by state, wakers, preemptors with their shares, and
durations of system calls, from `print --format json`. A folder of a late wake-up also has its
causes compared, as `monitor explain` and the viewer tell them. Nothing here shares code with the
readers. Where events are missing, a value has bounds: what the events prove, and what they
permit. Each disagreement is a line; the exit status is 1 if there is any.
"""
import bisect
import collections
import json
import math
import re
import subprocess
import sys
import time
import urllib.request

PREEMPTED = {0, 256, 1024, 2048}  # TASK_RUNNING, and the bits that stood for preemption over time
HANDLER = re.compile(r"(irq|softirq|expire|hrtimer).*_(entry|exit)$")
TIMEOUT = 120
LIMIT = 10  # lines of one kind of disagreement


class Trace:
    """Events in the order of time, and where some are missing on a CPU."""

    def __init__(self, tompion, folder):
        command = [tompion, "print", "--clock-seconds", "--format", "json", folder]
        printed = subprocess.run(command, capture_output=True, text=True, errors="replace")
        self.events = [json.loads(line) for line in printed.stdout.splitlines()]
        self.gaps = collections.defaultdict(list)
        loss = re.compile(r"discarded .*between \[(-?\d+)\.(\d{9})\] and \[(-?\d+)\.(\d{9})\].*_(\d+)\" \(stream class")
        for line in printed.stderr.splitlines():
            if found := loss.search(line):
                a, b, c, d, cpu = found.groups()
                self.gaps[int(cpu)].append((int(a + b), int(c + d)))
        self.is_sound = not re.search(r"warning: (?!Tracer discarded)", printed.stderr) and printed.returncode == 0
        for event in self.events:
            event["event"] = event["event"].removeprefix("sched:")
            fields = event["fields"]
            for old, new in (("prev_pid", "prev_tid"), ("next_pid", "next_tid"), ("pid", "tid")):
                if old in fields and new not in fields:
                    fields[new] = fields[old]
        self.begin = self.events[0]["timestamp_ns"] if self.events else 0
        self.end = self.events[-1]["timestamp_ns"] if self.events else 0
        first = {}
        for event in self.events:
            if event["event"] in ("sched_switch", "sched_waking", "sched_wakeup"):
                first.setdefault(event.get("cpu"), event["timestamp_ns"])
        # A history has the newest events of each CPU: nothing is known of one before its first.
        for cpu, time in first.items():
            self.gaps[cpu].append((self.begin, time))

    def is_gap(self, cpu, begin, end):
        return any(a < end and b > begin for a, b in self.gaps.get(cpu, ()))

    def is_any_gap(self, begin, end):
        return any(self.is_gap(cpu, begin, end) for cpu in self.gaps)


def number(value):
    if isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, int) else None


class Bounds:
    """What the events prove, and what they permit on top."""

    def __init__(self):
        self.sure = collections.Counter()
        self.open = collections.Counter()

    def add(self, key, length, is_sure):
        (self.sure if is_sure else self.open)[key] += max(length, 0)

    def permits(self, key, value):
        return self.sure[key] <= value <= self.sure[key] + self.open[key]

    def words(self, key):
        low, more = self.sure[key], self.open[key]
        return str(low) if not more else f"{low} to {low + more}"


class Expected:
    """What follows from the events of one kernel trace."""

    def __init__(self, trace):
        self.trace = trace
        self.running = collections.defaultdict(list)  # cpu: (begin, end, tid, whether known)
        self.preempted, self.wakers, self.first = {}, collections.defaultdict(set), {}
        self.out = collections.defaultdict(list)  # tid: (time, cpu, prev_state)
        self.into = collections.defaultdict(list)
        self.woken = collections.defaultdict(list)
        self.calls = collections.defaultdict(list)
        self.open_calls = collections.Counter()
        self.read()
        self.times = self.by_state()

    def read(self):
        trace, last, current, calls = self.trace, {}, {}, {}
        handlers = collections.Counter()  # CPU: interrupts, softirqs and timers that were entered
        others = collections.defaultdict(set)  # CPU: threads of its events since the last switch
        for event in trace.events:
            name, cpu, now, fields = event["event"], event.get("cpu"), event["timestamp_ns"], event["fields"]
            tid = event["context"].get("tid", event["context"].get("vtid"))
            if tid is not None and name != "sched_switch":
                others[cpu].add(tid)
            if name == "sched_switch":
                prev, next_ = fields["prev_tid"], fields["next_tid"]
                state = number(fields["prev_state"])
                if cpu in last:
                    since, runner = last[cpu]
                    known = runner == prev and not trace.is_gap(cpu, since, now)
                    self.running[cpu].append((since, now, runner, known))
                    if not known:
                        # A switch is missing: each thread with an event there may have run.
                        for runner in others[cpu] | {prev, 0}:
                            self.running[cpu].append((since, now, runner, False))
                else:
                    self.running[cpu].append((trace.begin, now, prev, False))
                others[cpu] = set()
                last[cpu] = (now, next_)
                current[cpu] = next_
                self.out[prev].append((now, cpu, state))
                self.into[next_].append((now, cpu))
                self.first[(now, prev)] = next_
            elif name in ("sched_waking", "sched_wakeup", "sched_wakeup_new"):
                woken = fields["tid"]
                self.woken[woken].append((now, name))
                stated = number(fields.get("waker_context"))
                if stated == 1:
                    self.wakers[(now, woken)].add(tid)
                elif stated is None and not handlers[cpu]:
                    self.wakers[(now, woken)].add(current.get(cpu))
            elif name == "sched_process_exec" and fields.get("old_tid", fields["tid"]) != fields["tid"]:
                # A thread that executes a program gets its leader's id.
                old, new = fields["old_tid"], fields["tid"]
                if old in calls:
                    calls[new] = calls.pop(old)
                for of, (since, runner) in last.items():
                    if runner == old:
                        self.running[of].append((since, now, old, not trace.is_gap(of, since, now)))
                        last[of], current[of] = (now, new), new
            elif HANDLER.search(name):
                handlers[cpu] = max(handlers[cpu] + (1 if name.endswith("entry") else -1), 0)
            elif name.startswith(("syscall_entry_", "compat_syscall_entry_", "sys_")):
                tid = tid if tid is not None else current.get(cpu)
                call = re.sub(r"^(compat_)?sys(call_entry)?_", "", name)
                if tid is not None:
                    if tid in calls:
                        self.open_calls[calls[tid][0]] += 1
                    calls[tid] = (call, now)
            elif name.startswith(("syscall_exit_", "compat_syscall_exit_")) or name == "exit_syscall":
                tid = tid if tid is not None else current.get(cpu)
                call = re.sub(r"^(compat_)?syscall_exit_", "", name)
                if tid in calls:
                    begun, since = calls.pop(tid)
                    # A return from a signal's handler has no call's number at its exit.
                    is_return = (begun, call) == ("rt_sigreturn", "unknown")
                    if name == "exit_syscall" or begun == call or is_return:
                        self.calls[begun].append((since, now))
                    else:
                        self.open_calls[begun] += 1
        for cpu, (since, runner) in last.items():
            for runner in {runner} | (others[cpu] if trace.is_gap(cpu, since, trace.end) else set()):
                self.running[cpu].append((since, trace.end, runner, False))
        for call, _ in calls.values():
            self.open_calls[call] += 1

    def by_state(self):
        times = collections.defaultdict(Bounds)
        trace = self.trace
        for cpu, pieces in self.running.items():
            for begin, end, tid, known in pieces:
                times["running"].add(tid, end - begin, known)
                times["idle" if tid == 0 else "busy"].add(cpu, end - begin, known)
        for tid in self.out.keys() | self.into.keys():
            outs, arrivals = self.out[tid], [at for at, _ in self.into[tid]]
            wakings = [at for at, _ in self.woken[tid]]
            # Before the first switch it may have waited.
            first = min(arrivals[:1] + [at for at, _, _ in outs[:1]])
            for state in ("ready", "preempted", "asleep"):
                times[state].add(tid, first - trace.begin, False)
            # Two switches to it without one away: that one is missing. A wakeup since then tells
            # that it was ready.
            left = [at for at, _, _ in outs]
            for begun, end in zip(arrivals, arrivals[1:] + [trace.end]):
                is_left = bisect.bisect_left(left, begun) < bisect.bisect_right(left, end)
                if not is_left and trace.is_any_gap(begun, end):
                    for state in ("ready", "preempted", "asleep"):
                        times[state].add(tid, end - begun, False)
            for (begun, cpu, state), after in zip(outs, outs[1:] + [None]):
                end = next((at for at in arrivals if at > begun), trace.end)
                end = min(end, after[0]) if after else end
                # Two switches away without one to it: the one between is missing.
                known = end in arrivals and not trace.is_any_gap(begun, end)
                woken = next((at for at in wakings if begun < at <= end), None)
                if state in PREEMPTED:
                    times["preempted"].add(tid, end - begun, known)
                    self.preempted[(begun, tid)] = (end, cpu)
                elif known and woken is not None:
                    times["ready"].add(tid, end - woken, True)
                    times["asleep"].add(tid, woken - begun, True)
                else:
                    times["ready"].add(tid, end - begun, False)
                    times["asleep"].add(tid, end - begun, False)
                if not known:
                    times["preempted"].add(tid, end - begun, False)
                    times["ready"].add(tid, end - begun, False)
        return times

    def share(self, cpu, begin, end, tid):
        """The least and the most of a time that a CPU ran a thread, in percent."""
        low = high = 0
        for since, until, runner, known in self.running[cpu]:
            if runner == tid:
                both = max(0, min(end, until) - max(begin, since))
                high += both
                low += both if known else 0
        whole = max(end - begin, 1)
        return 100 * low / whole, 100 * high / whole


class Server:
    """The viewer's, for one trace."""

    def __init__(self, tompion, folder):
        command = [tompion, "view", "--no-open", folder]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url, self.token = self.process.stdout.readline().strip().split("?")
        until = time.monotonic() + TIMEOUT
        while self.get("trace")["progress"] != 1.0:
            assert time.monotonic() < until, "the index is not complete"
            time.sleep(0.05)

    def get(self, name, question=""):
        with urllib.request.urlopen(f"{self.url}api/{name}?{question}&{self.token}", timeout=TIMEOUT) as answer:
            return json.load(answer)

    def end(self):
        self.process.kill()
        self.process.wait()


class Findings:
    def __init__(self, folder):
        self.folder, self.lines, self.checked = folder, [], collections.Counter()

    def check(self, kind, is_so, line):
        self.checked[kind] += 1
        if not is_so:
            self.lines.append(f"{self.folder}: {kind}: {line}")

    def tell(self):
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.checked.items()))
        print(f"{self.folder}: {kinds or 'nothing to compare'}: {len(self.lines)} disagreements")
        for line in self.lines[:LIMIT]:
            print("  " + line)
        return not self.lines


def by_id(threads):
    """Adds up threads that had one id, one after the other."""
    sums = {}
    for thread in threads:
        if known := sums.get(thread["tid"]):
            for state in ("running", "ready", "preempted", "blocked", "io", "stopped"):
                known[state] += thread[state]
        else:
            sums[thread["tid"]] = dict(thread)
    return sums.values()


def compare_states(expected, whole, found):
    for cpu in whole["cpus"]:
        if cpu["cpu"] not in expected.running:
            # No switch: one thread, or none, had it all the time, and no event says which.
            found.check("times of CPUs", not (cpu["busy"] and cpu["idle"]),
                        f"CPU {cpu['cpu']} was busy {cpu['busy']} ns and idle {cpu['idle']} ns without a switch")
            continue
        for state in ("busy", "idle"):
            bounds, value = expected.times[state], cpu[state]
            found.check("times of CPUs", bounds.permits(cpu["cpu"], value),
                        f"CPU {cpu['cpu']} was {state} {value} ns, the events say {bounds.words(cpu['cpu'])}")
    for thread in by_id(whole["threads"]):
        tid = thread["tid"]
        asleep = thread["blocked"] + thread["io"] + thread["stopped"]
        for state, value in (("running", thread["running"]), ("preempted", thread["preempted"]),
                             ("ready", thread["ready"])):
            bounds = expected.times[state]
            if tid not in expected.out and state != "running":
                continue
            found.check("times of threads", tid == 0 or bounds.permits(tid, value),
                        f"{thread['name']} ({tid}) was {state} {value} ns, the events say {bounds.words(tid)}")
        if tid in expected.out and not expected.times["asleep"].open[tid]:
            least = expected.times["asleep"].sure[tid]
            found.check("times of threads", asleep >= least, f"{tid} slept {asleep} ns, the events say {least} at least")


def compare_waits(expected, trace, whole, base, found):
    ran = re.compile(r"(?:CPU \d+ ran |, )(.*?) \(tid (\d+)\) (\d+) %")
    for wait in whole["waits"]:
        begin, end, tid, why = wait["begin"] + base, wait["end"] + base, wait["tid"], wait["why"]
        if not why.startswith("preempted"):
            continue
        begun = expected.preempted.get((begin, tid))
        if begun is None:
            found.check("preemptors", trace.gaps, f"{tid} was not preempted at {begin}: {why}")
            continue
        if only := re.search(r"^preempted(?:, first)? by .* \(tid (\d+)\)$", why):
            first = expected.first[(begin, tid)]
            found.check("preemptors", first == int(only[1]), f"{first} came first, not as reported: {why}")
        cpu = re.search(r"meanwhile CPU (\d+) ran", why)
        for name, runner, percent in ran.findall(why) if cpu else []:
            low, high = expected.share(int(cpu[1]), begin, end, int(runner))
            found.check("preemptors", begun[1] == int(cpu[1]) and low - 1 <= int(percent) <= high + 1,
                        f"{tid} left CPU {begun[1]}, on which {name} ({runner}) had {low:.1f} to {high:.1f} %: {why}")


def compare_arrows(expected, server, end, base, found):
    tracks = {}
    for track in server.get("tracks")["tracks"]:
        for lane in track.get("lanes", []):
            tracks[lane["id"] if isinstance(lane, dict) else lane] = track
    answer = server.get("arrows", f"from=0&to={end}&ids=")["arrows"]
    for at, source, _, target, kind in zip(*[iter(answer)] * 5):
        source, target = tracks.get(source), tracks.get(target)
        if kind == 0 and source and target:
            wakers = expected.wakers.get((at + base, target["tid"]), set())
            found.check("wakers", source["tid"] in wakers,
                        f"{source['tid']} did not wake {target['tid']} at {at + base}, the events say {wakers}")


def rank(values, percent):
    return values[max(math.ceil(len(values) * percent / 100), 1) - 1]


def compare_calls(expected, reported, names, precision, found):
    """`names` are those of the count, the total, percentiles and the maximum."""
    for call in reported:
        name = call["name"]
        lengths = sorted(end - begin for begin, end in expected.calls.get(name, []))
        sure = sorted(end - begin for begin, end in expected.calls.get(name, [])
                      if not expected.trace.is_any_gap(begin, end))
        count, total = call[names["count"]], call[names["total"]] or 0
        found.check("system calls", len(sure) <= count <= len(lengths),
                    f"{name} has {count}, the events say {len(sure)} to {len(lengths)}")
        found.check("system calls", sum(sure) <= total <= sum(lengths),
                    f"{name} took {total} ns, the events say {sum(sure)} to {sum(lengths)}")
        if not count or len(sure) != len(lengths) or count != len(sure):
            continue
        found.check("system calls", call[names["max"]] == lengths[-1], f"{name} took {call[names['max']]} ns at most")
        for percent, key in names["percentiles"]:
            exact, value = rank(lengths, percent), call[key]
            found.check("percentiles", exact * (1 - precision) <= value <= exact * (1 + precision),
                        f"{name}: {percent} % took up to {value} ns, the events say {exact}")


VIEWER = {"count": "count", "total": "total", "max": "max", "percentiles": [(50, "p50"), (90, "p90"), (99, "p99")]}
STAT = {"count": "count", "total": "total_ns", "max": "max_ns", "percentiles": [(50, "p50_ns"), (99, "p99_ns")]}


def compare_incident(tompion, folder, trace, expected, shown, found):
    run = lambda *words: subprocess.run([tompion, "monitor", "explain", *words, folder], capture_output=True,
                                        text=True, check=True).stdout
    reported, sentence = json.loads(run("--json")), run().splitlines()[0]
    latency, ahead = reported["latency_ns"], reported["ahead_ns"]
    sums = collections.Counter()
    for segment in reported["segments"]:
        sums[segment["cause"]] += segment["end"] - segment["begin"]
    found.check("shares", sum(sums.values()) == latency, f"the segments last {sum(sums.values())} of {latency} ns")
    for cause in reported["causes"]:
        percent = 100 * sums[cause["cause"]] / latency
        found.check("shares", abs(percent - cause["percent"]) < 0.01, f"{cause}: the segments say {percent}")
    # The viewer tells apart what `explain` sums up: two soft interrupts, two holders of a lock.
    whole = [sum(part["percent"] for part in parts) for parts in (shown["culprits"], reported["causes"])]
    found.check("explain and viewer", abs(whole[0] - whole[1]) < 0.1, f"{whole[0]} % in the viewer, {whole[1]} reported")
    verdict = shown["verdict"]
    words = f"{verdict['percent']:.0f} % of it while {verdict['words']}" if verdict else ""
    found.check("explain and viewer", words in sentence, f"explain: {sentence}; viewer: {words}")
    found.check("explain and viewer", shown["end"] - shown["begin"] == latency, f"the viewer's lasts {shown}")
    for segment in reported["segments"]:
        if not segment["tid"] or segment["cause"] in ("own-path", "kernel-overhead"):
            continue
        begin, end = segment["begin"] + ahead, segment["end"] + ahead
        low, high = expected.share(segment["cpu"], begin, end, segment["tid"])
        found.check("causes", high > 50, f"{segment} names a thread that had {low:.0f} to {high:.0f} % of the CPU")


def compare(tompion, folder):
    trace, found = Trace(tompion, folder), Findings(folder)
    if not any(event["event"] == "sched_switch" for event in trace.events) or not trace.is_sound:
        return found.tell()
    expected = Expected(trace)
    server = Server(tompion, folder)
    try:
        about = server.get("trace")
        base, end = int(about["base"]), about["end"]
        whole = server.get("select", f"from=0&to={end}")
        compare_states(expected, whole, found)
        compare_waits(expected, trace, whole, base, found)
        compare_arrows(expected, server, end, base, found)
        compare_calls(expected, whole["syscalls"], VIEWER, 0.01, found)
        if about["incident"]:
            compare_incident(tompion, folder, trace, expected, about["incident"], found)
    finally:
        server.end()
    stat = subprocess.run([tompion, "stat", "--json", folder], capture_output=True, text=True).stdout
    compare_calls(expected, json.loads(stat).get("durations", {}).get("syscalls", []), STAT, 1 / 128, found)
    return found.tell()


if __name__ == "__main__":
    results = [compare(sys.argv[1], folder) for folder in sys.argv[2:]]
    sys.exit(0 if all(results) else 1)
