"""Functions, collections, messages, tasks; and the same of programs that are not changed."""

from __future__ import annotations

import collections
import unittest

from support import Recorded, fields, names


def nesting(events: list[str]) -> list[str]:
    """Returns the open spans that are left, or raises if an end has no begin."""
    stack: list[str] = []
    for name in events:
        if name.endswith("_begin"):
            stack.append(name[:-6])
        elif name.endswith("_end"):
            assert stack and stack[-1] == name[:-4], (name, stack)
            stack.pop()
    return stack


class Runtime(Recorded):
    """Programs that ask for it."""

    def test_functions_are_spans_with_their_names(self) -> None:
        events = self.record("""
            import tompion
            def leaf(): return 1
            def fails(): raise ValueError
            class Thing:
                def method(self): return leaf()
            def generator():
                yield leaf()
                yield 2
            def left_out(): return leaf()
            tompion.record_functions(include=["__main__"], exclude=["__main__.left_out"])
            Thing().method()
            list(generator())
            try: fails()
            except ValueError: pass
            left_out()
            tompion.stop_functions()
            leaf()
        """)
        found = names(events, "python:")
        counts = collections.Counter(name.split(".", 1)[1] for name in found if name.endswith("_begin"))
        method = "Thing.method_begin" if "Thing.method_begin" in counts else "method_begin"
        self.assertEqual(counts, {"leaf_begin": 3, method: 1, "generator_begin": 3, "fails_begin": 1})
        self.assertEqual(nesting(found), [])

    def test_functions_can_be_chosen_anew(self) -> None:
        events = self.record("""
            import tompion
            def first(): pass
            def second(): pass
            for chosen in ["first", "second", "*"]:
                tompion.record_functions(include=["__main__." + chosen], exclude=["__main__"])
                tompion.record_functions(include=["__main__." + chosen])
                first(); second()
            tompion.stop_functions()
            first(); second()
        """)
        found = [name for name in names(events) if name.startswith("python:__main__.") and name.endswith("_begin")]
        expected = ["first", "second", "first", "second"]
        self.assertEqual(found, [f"python:__main__.{name}_begin" for name in expected])

    def test_functions_of_threads_are_recorded(self) -> None:
        events = self.record("""
            import threading, tompion
            def work():
                for _ in range(10): leaf()
            def leaf(): pass
            tompion.record_functions(include=["__main__"])
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        """)
        threads = collections.defaultdict(list)
        for event in events:
            if event["event"].startswith("python:__main__.leaf"):
                threads[event["context"]["vtid"]].append(event["event"])
        self.assertEqual(len(threads), 3)
        for found in threads.values():
            self.assertEqual(found.count("python:__main__.leaf_begin"), 10)
            self.assertEqual(nesting(found), [])

    def test_collections_are_spans(self) -> None:
        events = self.record("""
            import gc, tompion
            gc.disable()
            tompion.record_gc()
            cycle = []
            cycle.append(cycle)
            del cycle
            gc.collect()
            tompion.stop_gc()
            gc.collect()
        """)
        self.assertEqual(names(events), ["python:gc_begin", "python:gc_end"])
        self.assertEqual(fields(events, "python:gc_begin"), [{"generation": 2}])
        self.assertGreaterEqual(fields(events, "python:gc_end")[0]["collected"], 1)

    def test_messages_of_logging_have_levels(self) -> None:
        events = self.record("""
            import logging, tompion
            logger = logging.getLogger("app.db")
            logger.addHandler(tompion.LogHandler())
            logger.setLevel(logging.DEBUG)
            def query():
                logger.debug("rows %d", 3)
                logger.warning("slow")
                logger.error("wrong %d", "text")
                logger.log(35, "between")
            query()
        """, "--level", "warning")  # fmt: skip
        self.assertEqual(names(events), ["logging:warning", "logging:error", "logging:warning"])
        first = fields(events, "logging:warning")[0]
        self.assertEqual((first["logger"], first["message"], first["function"]), ("app.db", "slow", "query"))
        self.assertTrue(first["file"].endswith("program.py") and first["line"] > 0)

    def test_messages_that_can_not_be_made_reach_the_trace_and_no_program(self) -> None:
        events = self.record("""
            import logging, tompion
            class Bad:
                def __str__(self): raise KeyError("no text")
            class Worse(Exception):
                def __str__(self): raise self
            class Worst:
                def __str__(self): raise Worse
            logging.raiseExceptions = False
            tompion.record_logging()
            logging.warning(Bad())
            logging.warning("%s", Worst())
        """)
        messages = [found["message"] for found in fields(events, "logging:warning")]
        self.assertEqual(messages, [
            "<Bad: str() raises KeyError> (KeyError: 'no text')", "%s (Worse: <Worse: str() raises Worse>)"
        ])  # fmt: skip

    def test_interrupts_reach_the_program_when_a_function_or_task_is_new(self) -> None:
        self.record("""
            import asyncio, tompion
            from tompion import _functions
            def interrupt(*_): raise KeyboardInterrupt
            def leaf(): return 1
            def describe(code, module): return interrupt() if code is leaf.__code__ else None
            _functions._describe_function = describe
            tompion.event("t:good")
            tompion.record_functions(include=["__main__.leaf"])
            try: leaf()
            except KeyboardInterrupt: pass
            else: raise SystemExit("the function's interrupt is gone")
            finally: tompion.stop_functions()
            async def work(): return 1
            steps = tompion._tompion.Steps(work(), interrupt)
            try: steps.send(None)
            except KeyboardInterrupt: pass
            else: raise SystemExit("the task's interrupt is gone")
            try: steps.send(None)
            except StopIteration as end: assert end.value == 1
            assert tompion.current_task() == 0
            assert tompion.status().refused == 2, tompion.status()
        """)

    def test_a_function_that_was_not_described_is_asked_for_again(self) -> None:
        events = self.record("""
            import tompion
            from tompion import _functions
            def leaf(): return 1
            good, left = _functions._describe_function, [1, 1]
            def describe(code, module):
                if code is leaf.__code__ and left: raise MemoryError(left.pop())
                return good(code, module)
            _functions._describe_function = describe
            tompion.record_functions(include=["__main__.leaf"])
            for _ in range(4): leaf()
            tompion.stop_functions()
        """)
        found = [name for name in names(events) if name.startswith("python:__main__.leaf")]
        self.assertEqual(found, ["python:__main__.leaf_begin", "python:__main__.leaf_end"] * 2)

    def test_tasks_are_resumed_and_suspended_by_turns(self) -> None:
        events = self.record("""
            import asyncio, tompion
            tompion.record_tasks()
            async def child(n):
                with tompion.span("t:work", n=n):
                    await asyncio.sleep(0.001)
                    assert tompion.current_task() != 0
                return n
            async def failing(): raise ValueError
            async def main():
                first = asyncio.create_task(child(1), name="first")
                assert "child" in repr(first), repr(first)
                second = asyncio.ensure_future(child(2))
                endless = asyncio.create_task(asyncio.sleep(100))
                assert await asyncio.gather(first, second) == [1, 2]
                endless.cancel()
                results = await asyncio.gather(failing(), endless, return_exceptions=True)
                assert [type(result).__name__ for result in results] == ["ValueError", "CancelledError"], results
                assert await asyncio.wait_for(child(3), 5) == 3
            asyncio.run(main())
            assert tompion.current_task() == 0
        """)
        created = fields(events, "asyncio:task_create")
        by_coroutine = collections.Counter(task["coroutine"] for task in created)
        self.assertGreaterEqual(by_coroutine["child"], 2)
        self.assertEqual((by_coroutine["main"], by_coroutine["failing"], by_coroutine["sleep"]), (1, 1, 1))
        main = next(task for task in created if task["coroutine"] == "main")
        started = {task["name"]: task["async_id"] for task in fields(events, "asyncio:task_start")}
        first = next(task for task in created if task["async_id"] == started["first"])
        self.assertEqual((main["parent"], first["parent"]), (0, main["async_id"]))
        running = None
        for event in events:
            if event["event"] == "asyncio:task_resume":
                self.assertIsNone(running)
                running = event["fields"]["async_id"]
            elif event["event"] == "asyncio:task_suspend":
                self.assertEqual(event["fields"]["async_id"], running)
                running = None
            elif event["event"].startswith("t:work"):
                self.assertIsNotNone(running)
        begins, ends = fields(events, "t:work_begin"), fields(events, "t:work_end")
        self.assertEqual(sorted(begin["n"] for begin in begins), [1, 2, 3])
        self.assertEqual(sorted(begin["span"] for begin in begins), sorted(end["span"] for end in ends))
        self.assertEqual(len({begin["span"] for begin in begins}), 3)
        self.assertLessEqual({begin["task"] for begin in begins}, {task["async_id"] for task in created})
        outcomes = {end["async_id"]: str(end["outcome"]) for end in fields(events, "asyncio:task_end")}
        self.assertLessEqual(set(outcomes), {task["async_id"] for task in created})
        self.assertIn("returned", outcomes[first["async_id"]])
        failing = next(task for task in created if task["coroutine"] == "failing")
        endless = next(task for task in created if task["coroutine"] == "sleep")
        self.assertIn("raised", outcomes[failing["async_id"]])
        self.assertIn("cancelled", outcomes[endless["async_id"]])


    def test_spans_of_tasks_have_numbers_and_parents(self) -> None:
        events = self.record("""
            import asyncio, tompion
            tompion.record_tasks()
            @tompion.span("t:inner")
            async def inner(): await asyncio.sleep(0.001)
            async def outer(n):
                with tompion.span("t:outer", n=n), tompion.job("t:job", 5, n=n):
                    await inner()
                    await inner()
                span = tompion.span("t:again", n=n)
                with span, span, span, span, span, span: pass
            async def main(): await asyncio.gather(outer(1), outer(2))
            with tompion.span("t:thread"): asyncio.run(main())
        """, "--filter", "n != 2")  # fmt: skip
        # Spans without the field do not pass the filter; ends go where their begins went.
        self.assertEqual(len(fields(events, "t:outer_begin")), 1)
        self.assertEqual(fields(events, "t:outer_end"), [{"span": fields(events, "t:outer_begin")[0]["span"]}])
        job = fields(events, "t:job_begin")[0]
        self.assertEqual((job["deadline_ns"], job["parent"]), (5, fields(events, "t:outer_begin")[0]["span"]))
        again = fields(events, "t:again_begin")
        self.assertEqual([one["parent"] for one in again], [0, *(one["span"] for one in again[:-1])])
        self.assertEqual(len(again), 4)
        self.assertEqual(len(fields(events, "t:again_end")), 4)
        self.assertEqual(fields(events, "t:thread_begin"), [])


class Unchanged(Recorded):
    """Programs that know nothing of the package: `--preload python`."""

    PROGRAM = """
        import asyncio, gc, logging, sys
        def work(): return sum(range(10))
        async def main():
            await asyncio.gather(*(asyncio.sleep(0) for _ in range(2)))
            work()
        logging.warning("from the root")
        asyncio.run(main())
        gc.collect()
        print(getattr(sys, "customized", None))
    """

    def preload(self, **more: str) -> list[dict[str, object]]:
        """Records the program without a word in it."""
        environment = {**self.environment(), **more}
        environment["PYTHONPATH"] = more.get("PYTHONPATH", "")
        if "PYTHONPATH" not in more:
            del environment["PYTHONPATH"]
        events = self.record(self.PROGRAM, "--preload", "python", environment=environment)
        self.assertNotIn("Error in sitecustomize", self.recorder.stderr)
        return events

    def test_everything_is_recorded(self) -> None:
        found = names(self.preload(TOMPION_PYTHON_INCLUDE="__main__"))
        for name in (
            "python:__main__.work_begin",
            "python:__main__.main_begin",
            "python:gc_begin",
            "logging:warning",
            "asyncio:task_create",
            "asyncio:task_resume",
        ):
            self.assertIn(name, found)

    def test_parts_can_be_chosen(self) -> None:
        found = names(self.preload(TOMPION_PYTHON="gc"))
        self.assertEqual({name.split(":")[1] for name in found}, {"gc_begin", "gc_end"})

    def test_the_programs_own_sitecustomize_is_run(self) -> None:
        own = self.folder / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text("import sys; sys.customized = __file__\n")
        self.preload(PYTHONPATH=str(own), TOMPION_PYTHON="gc")
        self.assertIn(f"{own}/sitecustomize.py", self.recorder.stdout)

    def test_an_error_of_the_programs_own_is_reported_as_ever(self) -> None:
        own = self.folder / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text("raise KeyError('of its own')\n")
        self.record(
            "import sys",
            "--preload",
            "python",
            environment=self.environment(PYTHONPATH=str(own), TOMPION_PYTHON="functions"),
        )
        self.assertIn("KeyError: 'of its own'", self.recorder.stderr)


if __name__ == "__main__":
    unittest.main()
