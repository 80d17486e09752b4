"""Spans, state dumps, threads, forks and exits of whole programs."""

from __future__ import annotations

import unittest

from support import BUILD, Recorded, fields, names


class Programs(Recorded):
    """Programs that use the package."""

    def test_decorated_functions_of_every_kind(self) -> None:
        events = self.record("""
            import asyncio, tompion
            @tompion.span("t:plain", n=1)
            def plain(): return 1
            @tompion.span("t:raising")
            def raising(): raise ValueError("x")
            @tompion.span("t:generator")
            def generator():
                got = yield 1
                assert got == "sent"
                try:
                    yield 2
                except KeyError:
                    yield 3
                return 4
            @tompion.span("t:coroutine")
            async def coroutine(): return 5
            @tompion.span("t:stream")
            async def stream():
                yield 6
                yield 7
            assert plain() == 1
            try: raising()
            except ValueError: pass
            steps = generator()
            assert (next(steps), steps.send("sent"), steps.throw(KeyError())) == (1, 2, 3)
            try: next(steps)
            except StopIteration as end: assert end.value == 4
            async def main():
                assert await coroutine() == 5
                assert [item async for item in stream()] == [6, 7]
            asyncio.run(main())
        """)
        for name, count in {"plain": 1, "raising": 1, "generator": 4, "coroutine": 1, "stream": 3}.items():
            for end in ("begin", "end"):
                self.assertEqual(len(fields(events, f"t:{name}_{end}")), count, name)

    def test_a_span_that_is_entered_within_itself_ends_as_often(self) -> None:
        events = self.record("""
            import tompion
            span = tompion.span("t:s", a=1)
            def enter(depth):
                with span:
                    if depth: enter(depth - 1)
            enter(30)
        """)
        self.assertEqual(names(events), ["t:s_begin"] * 31 + ["t:s_end"] * 31)

    def test_a_span_of_too_many_types_is_entered_within_itself(self) -> None:
        events = self.record("""
            import tompion
            for number in range(17):
                span = tompion.span("t:s", a=type(f"T{number}", (), {})())
            with span, span, span, span, span, span:
                tompion.event("t:within")
        """)
        self.assertEqual(names(events), ["t:within"])

    def test_an_interrupt_of_a_begin_leaves_the_span_as_it_was(self) -> None:
        events = self.record("""
            import asyncio, tompion
            class Once:
                def __str__(self, left=[1]):
                    if left: raise KeyboardInterrupt(left.pop())
                    return "shown"
            def enter():
                span = tompion.span("t:s", a=Once())
                try:
                    with span: raise SystemExit("entered")
                except KeyboardInterrupt: pass
                with span: pass
                return span
            enter()
            async def main(): enter()
            tompion.record_tasks()
            Once.__str__.__defaults__[0].append(1)
            asyncio.run(main())
        """)
        found = [name for name in names(events) if name.startswith("t:")]
        self.assertEqual(found, ["t:s_begin", "t:s_end"] * (len(found) // 2))
        self.assertEqual(len(found), 4)

    def test_a_state_dump_is_what_a_recording_begins_with(self) -> None:
        events = self.record("""
            import tompion, time
            item = tompion.Event("t:item", number=int)
            @tompion.state_dump
            def dump():
                for number in range(3): item(number)
            for _ in range(200):
                if item.enabled: break
                time.sleep(0.01)
            time.sleep(0.3)
            item(99)
            assert tompion.remove_state_dump(dump)
            assert not tompion.remove_state_dump(dump)
        """)
        self.assertEqual([found["number"] for found in fields(events, "t:item")], [0, 1, 2, 99])

    def test_a_state_dump_is_over_before_the_interpreter_is(self) -> None:
        program = """
            import tompion, threading, time
            @tompion.state_dump
            def dump(): tompion.event("t:dumped")
            threading.Thread(target=lambda: time.sleep(60), daemon=True).start()
            tompion.event("t:last")
        """
        for _ in range(5):
            self.finish(["rm", "-rf", "trace"])
            self.assertIn("t:last", names(self.record(program)))

    def test_a_flight_recorder_is_saved_on_request(self) -> None:
        self.record(
            """
            import tompion
            tompion.event("t:before")
            assert tompion.snapshot()
            """,
            "--mode",
            "overwrite",
        )

    def test_forked_children_with_threads_record_and_end(self) -> None:
        events = self.record("""
            import os, threading, tompion
            stop = threading.Event()
            def work():
                while not stop.wait(0.0005): tompion.event("t:work")
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads: thread.start()
            for number in range(10):
                child = os.fork()
                if child == 0:
                    for inner in range(100): tompion.event("t:child", number=number, inner=inner)
                    tompion.event(f"t:new{number}")
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
            stop.set()
            for thread in threads: thread.join()
        """, "--subbufs", "16")  # fmt: skip
        found = [(event["number"], event["inner"]) for event in fields(events, "t:child")]
        self.assertEqual(sorted(found), [(number, inner) for number in range(10) for inner in range(100)])
        self.assertEqual(len([name for name in names(events) if name.startswith("t:new")]), 10)

    def test_multiprocessing_records_in_every_way_to_start(self) -> None:
        events = self.record("""
            import multiprocessing, tompion
            def work(way): tompion.event("t:child", way=way)
            if __name__ == "__main__":
                for way in ["fork", "spawn", "forkserver"]:
                    process = multiprocessing.get_context(way).Process(target=work, args=(way,))
                    process.start(); process.join()
                    assert process.exitcode == 0
        """)
        found = sorted(event["way"] for event in fields(events, "t:child"))
        self.assertEqual(found, ["fork", "forkserver", "spawn"])

    def test_a_program_without_memory_goes_on(self) -> None:
        events = self.record("""
            import resource, tompion
            tompion.event("t:e", n=0, l=[1] * 10)
            used = int(open("/proc/self/statm").read().split()[0]) * 4096
            resource.setrlimit(resource.RLIMIT_AS, (used + 4_000_000, -1))
            hoard = []
            try:
                while True: hoard.append(bytearray(100_000))
            except MemoryError:
                pass
            try:
                while True: hoard.append(bytearray(1000))
            except MemoryError:
                pass
            for number in range(1, 1000):
                try:
                    tompion.event("t:e", n=number, l=[1] * 10)
                    tompion.event(f"t:new{number}")
                    with tompion.span(f"t:span{number}"): pass
                except MemoryError:
                    pass
            hoard.clear()
            tompion.event("t:e", n=1000, l=[1] * 10)
            print("went on")
        """)
        numbers = [event["n"] for event in fields(events, "t:e")]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual((numbers[0], numbers[-1]), (0, 1000))
        self.assertIn("went on", self.recorder.stdout)

    def test_events_of_destructors_at_the_interpreters_end(self) -> None:
        events = self.record("""
            import tompion
            class Last:
                def __del__(self, event=tompion.event, span=tompion.span):
                    event("t:gone", n=1)
                    with span("t:span"): pass
            last = Last()
            last.itself = last
        """)
        self.assertIn("t:gone", names(events))

    def test_signal_handlers_record_within_events(self) -> None:
        events = self.record("""
            import signal, time, tompion
            signal.signal(signal.SIGALRM, lambda *_: tompion.event("t:signal"))
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            end = time.monotonic() + 0.3
            while time.monotonic() < end: tompion.event("t:e", s="text")
            signal.setitimer(signal.ITIMER_REAL, 0)
        """, "--subbufs", "32")  # fmt: skip
        self.assertGreater(len(fields(events, "t:signal")), 10)

    def test_the_command_is_the_one_that_was_built(self) -> None:
        self.assertTrue((BUILD / "tompion").exists(), "run ./x test python")


if __name__ == "__main__":
    unittest.main()
