"""Values of Python as fields, and what is refused."""

from __future__ import annotations

import unittest

from support import BUILD, Recorded, fields, names


class Values(Recorded):
    """Types by the first use, and declared ones."""

    def test_an_event_has_the_types_of_its_values(self) -> None:
        events = self.record("""
            import array, enum, tompion
            class Color(enum.Enum):
                RED = 1
            class Word(enum.Enum):
                ONE = "one"
            class Small(int):
                pass
            class Indexed:
                def __index__(self): return 9
            class Shown:
                def __str__(self): return "shown"
            for _ in range(2):
                tompion.event("t:e", i=-1, f=0.5, b=True, s="é", y=b"\\x01", m=memoryview(b"\\x02"), l=[1, 2],
                              a=array.array("H", [3, 4]), c=Color.RED, w=Word.ONE, n=None, p=Small(5),
                              x=Indexed(), o=Shown(), t=("a",), z=bytearray(b"\\x03"))
        """)
        found = fields(events, "t:e")
        self.assertEqual(len(found), 2)
        self.assertEqual(found[0], found[1])
        lengths = {name for name in found[0] if name.startswith("_")}
        values = {name: value for name, value in found[0].items() if name not in lengths}
        color = values.pop("c")
        self.assertIn("RED", str(color))
        expected = {
            "i": -1, "f": 0.5, "b": True, "s": "é", "y": [1], "m": [2], "l": [1, 2], "a": [3, 4], "w": "Word.ONE",
            "n": "None", "p": 5, "x": 9, "o": "shown", "t": "('a',)", "z": [3],
        }  # fmt: skip
        self.assertEqual({name: value if name != "b" else bool(value) for name, value in values.items()}, expected)

    def test_other_types_are_another_event_of_the_name(self) -> None:
        events = self.record("""
            import tompion
            for value in [1, "one", None, 1.5, 2, "two"]:
                tompion.event("t:e", value=value)
        """)
        self.assertEqual([found["value"] for found in fields(events, "t:e")], [1, "one", "None", 1.5, 2, "two"])

    def test_names_that_are_made_find_their_event(self) -> None:
        events = self.record("""
            import tompion
            for number in range(3000):
                tompion.event("t:" + str(number % 3), **{"n" * (number % 2 + 1): number})
        """)
        counts = [sum(name == f"t:{number}" for name in names(events)) for number in range(3)]
        self.assertEqual(counts, [1000, 1000, 1000])

    def test_integers_of_declared_types_are_cast_as_in_c(self) -> None:
        events = self.record("""
            import tompion
            e = tompion.Event("t:e", a=tompion.u8, b=tompion.i8, c=tompion.u64, d=tompion.array(tompion.u8, 2),
                              s=tompion.struct(x=tompion.u16, in_=tompion.struct(y=str)))
            e(300, 200, -1, [1], (70000, ("deep",)))
            e(d=[1, 2, 3], s=[1, ["x"]], c=2**64 + 5, b=-1, a=True)
        """)
        first, second = fields(events, "t:e")
        self.assertEqual((first["a"], first["b"], first["c"], first["d"]), (44, -56, 2**64 - 1, [1, 0]))
        self.assertEqual(first["s"], {"x": 4464, "in_": {"y": "deep"}})
        self.assertEqual((second["a"], second["b"], second["c"], second["d"]), (1, -1, 5, [1, 2]))

    def test_texts_that_are_no_utf8_and_large_ones_are_whole(self) -> None:
        events = self.record("""
            import tompion
            tompion.event("t:e", s="a\\udc80b")
            tompion.event("t:e", s="cut\\0off")
            tompion.event("t:e", s="x" * 60000)
        """)
        found = [event["s"] for event in fields(events, "t:e")]
        self.assertEqual(found[:2], ["a\\udc80b", "cut"])
        self.assertEqual(found[2], "x" * 60000)

    def test_values_without_a_form_are_counted_and_reach_nobody(self) -> None:
        self.record("""
            import tompion
            class Bad:
                def __str__(self): raise KeyError("no text")
            typed = tompion.Event("t:typed", a=tompion.u8, s=tompion.struct(x=int))
            tompion.event("t:good")
            tompion.event("t:e", n=2**63)
            tompion.event("t:e", n=1)
            tompion.event("t:bad", o=Bad())
            typed("text", (1,))
            typed(1, (1, 2))
            with tompion.span("t:span", o=Bad()):
                pass
            status = tompion.status()
            assert status.refused == 5, status
            assert "beyond 64 bits" in str(status), status
        """)
        found = self.events()
        self.assertEqual(names(found), ["t:good", "t:e"])

    def test_marks_of_other_numbers_of_arguments_are_wrong_at_each_call(self) -> None:
        events = self.record("""
            import tompion
            def mark(*arguments): tompion.mark("m", "%d %s", *arguments)
            mark(1, "one")
            for wrong in [(), (1,), (1, "one", 2), (1.5,), ("text",)] * 20:
                try: mark(*wrong)
                except ValueError as error: assert "2 conversions" in str(error), error
                else: raise SystemExit("not refused")
            mark(2, "two")
        """)
        found = [(event["arg1"], event["arg2"]) for event in fields(events, "mark:m")]
        self.assertEqual(found, [(1, "one"), (2, "two")])

    def test_a_call_that_fails_changes_nothing_for_later_ones(self) -> None:
        events = self.record("""
            import tompion
            e = tompion.Event("t:e", a=int, b=int, c=int)
            def good(): e(a=1, b=2, c=3)
            good()
            for wrong in [lambda: e(c=9, b=8, no=7), lambda: e(5, b=8, a=7), lambda: e(c=1, a=2, d=3)]:
                try: wrong()
                except TypeError: pass
                else: raise SystemExit("not refused")
                good()
            class Same(str):
                def __eq__(self, other): return True
                def __hash__(self): return str.__hash__(self)
            try: e(**{Same("a"): 1, Same("x"): 2, Same("y"): 3})
            except TypeError: pass
            else: raise SystemExit("not refused")
        """)
        self.assertEqual(fields(events, "t:e"), [{"a": 1, "b": 2, "c": 3}] * 4)

    def test_exceptions_that_end_a_program_reach_it(self) -> None:
        events = self.record("""
            import tompion
            class Ends:
                def __init__(self, kind): self.kind = kind
                def __str__(self): raise self.kind
                def __index__(self): raise self.kind
            class Worse(Exception):
                def __str__(self): raise KeyboardInterrupt
            typed = tompion.Event("t:typed", n=int)
            calls = [lambda value: tompion.event("t:e", value=value), lambda value: tompion.mark("m", "%s", value),
                     lambda value: typed(value), lambda value: typed(n=value),
                     lambda value: tompion.span("t:s", value=value).__enter__()]
            for kind in [KeyboardInterrupt, SystemExit, GeneratorExit, Worse]:
                for call in calls:
                    try: call(Ends(kind))
                    except (KeyboardInterrupt if kind is Worse else kind): pass
                    else: raise AssertionError(kind)
            assert tompion.status().refused == 20, tompion.status()
            tompion.event("t:good")
        """)
        self.assertEqual(names(events), ["t:good"])

    def test_no_value_makes_an_event_raise(self) -> None:
        events = self.record("""
            import enum, tompion, weakref
            class Proxy:
                @property
                def __class__(self): raise RuntimeError("outside of a request")
                def __getattr__(self, name): raise RuntimeError("outside of a request")
                def __repr__(self): raise RuntimeError("outside of a request")
                def __str__(self): return "proxy"
            class Meta(type):
                def __getattr__(self, name): raise RuntimeError("no attributes")
            class Hidden(metaclass=Meta): pass
            Wrong = enum.Enum("Wrong", {"a" * 300: 1})
            class Target: pass
            target = Target()
            tompion.event("t:e", p=Proxy(), l=[Proxy()] and (Target,))
            tompion.event("t:p", p=weakref.proxy(Target))
            assert not tompion.status().refused, tompion.status()
            dead = weakref.proxy(target)
            del target
            refused = 0
            for _ in range(2):
                for call in [lambda: tompion.event("t:no", p=dead), lambda: tompion.event("t:no", h=Hidden()),
                             lambda: tompion.event("t:no", w=list(Wrong)[0]), lambda: tompion.span("t:no", h=Hidden()),
                             lambda: tompion.counter("t:n", None), lambda: tompion.counter("t:n", "text"),
                             lambda: tompion.counter("t:n", Proxy()), lambda: tompion.flow("t:no", Proxy()),
                             lambda: tompion.job("t:no", None).__enter__()]:
                    call()
                    refused += 1
                    assert tompion.status().refused == refused, (refused, tompion.status())
            tompion.counter("t:c", True)
            tompion.counter("t:c", 2)
            for wrong in [lambda: tompion.event("no_colon", h=Hidden()), lambda: tompion.counter("no_colon", None),
                          lambda: tompion.counter("t:c", None, 99)]:
                try: wrong()
                except ValueError: pass
                else: raise SystemExit("not refused")
        """)
        self.assertEqual([name for name in names(events) if "no" in name], [])
        self.assertEqual(fields(events, "t:e")[0]["p"], "proxy")
        self.assertEqual(len(fields(events, "t:p")), 1)
        self.assertEqual([found["value"] for found in fields(events, "t:c")], [1, 2])

    def test_integers_are_never_others_unless_their_field_was_declared(self) -> None:
        events = self.record("""
            import array, enum, tompion
            class Big(enum.Enum):
                ONE = 1
                HUGE = 2**64 + 5
            def record(value): tompion.event("t:e", value=value)
            for value in [[1], [2**64 + 5], [2**63], (-2**63, 2**63 - 1), (2**64,), Big.ONE, Big.HUGE]:
                record(value)
            for number in [-1, 2**64 - 1, 2**64 + 5, -2**63 - 1]:
                tompion.flow("t:flow", number)
            for deadline in [5, -1, 2**64 - 1, 2**64]:
                with tompion.job("t:job", deadline): pass
            assert tompion.status().refused == 8, tompion.status()
        """)
        values = [found["value"] for found in fields(events, "t:e")]
        self.assertEqual(values[:2], [[1], [-(2**63), 2**63 - 1]])
        self.assertEqual(len(values), 3)
        self.assertEqual(len(fields(events, "t:flow")), 2)
        deadlines = [found["deadline_ns"] for found in fields(events, "t:job_begin")]
        self.assertEqual(deadlines, [5, 2**64 - 1])

    def test_elements_of_other_kinds_are_another_event_of_the_name(self) -> None:
        events = self.record("""
            import array, tompion
            def record(value): tompion.event("t:e", value=value)
            class Own(array.array):
                typecode = "B"
            for value in [[1], ["a"], [2, None], [], (3,), ("b",), [True]]:
                record(value)
            for value in [array.array("H", [65535]), array.array("h", [-1]), array.array("q", [2**40]),
                          array.array("d", [0.5]), Own("i", [-7])]:
                record(value)
            assert not tompion.status().refused, tompion.status()
        """)
        self.assertEqual(
            [found["value"] for found in fields(events, "t:e")],
            [[1], "['a']", "[2, None]", [], [3], "('b',)", [1], [65535], [-1], [2**40], "array('d', [0.5])", [-7]],
        )

    def test_a_reason_that_is_cut_within_a_letter_is_shown(self) -> None:
        self.record("""
            import tompion
            class Bad:
                def __str__(self): raise ValueError("\u20ac" * 100)
            tompion.event("t:good")
            tompion.event("t:e", o=Bad())
            assert "\u20ac" in tompion.status().first_refusal
            str(tompion.status())
        """)

    def test_a_library_with_a_path_that_is_no_text_is_shown(self) -> None:
        folder = self.folder / "\udcff"
        folder.mkdir()
        (folder / "libtompion.so.0").symlink_to(BUILD / "libtompion.so")
        program = "import tompion; assert 'libtompion' in str(tompion.status()), ascii(tompion.status())"
        self.run_program(program, self.environment(LD_LIBRARY_PATH=str(folder)))

    def test_a_list_that_changes_while_it_is_read_is_safe(self) -> None:
        events = self.record("""
            import tompion
            items = []
            class Clearing:
                def __index__(self):
                    items.clear()
                    return 7
            typed = tompion.Event("t:e", l=tompion.sequence(tompion.i64))
            items.extend([Clearing(), Clearing(), Clearing()])
            typed(items)
        """)
        self.assertEqual(fields(events, "t:e")[0]["l"], [7, 7, 7])

    def test_an_event_that_is_declared_again_is_the_same(self) -> None:
        self.run_program("""
            import tompion
            for number in range(100):
                tompion.Event("t:e", n=int)(number)
            assert tompion.status().events == 1, tompion.status()
        """)

    def test_too_many_names_are_counted(self) -> None:
        self.run_program("""
            import tompion
            for number in range(9000):
                tompion.event("t:" + str(number))
            status = tompion.status()
            assert status.refused == 9000 - 8192, status
        """)


if __name__ == "__main__":
    unittest.main()
