"""Values of Python as fields, and what is refused."""

from __future__ import annotations

import unittest

from support import Recorded, fields, names


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
