import { describe, expect, it } from "vitest";
import { digitsFor, duration, grouped, moment, percent, relative, rulerFor, rulerStep, sizeText, timeOfDay } from "../../src/data/time";

const plain = (text: string): string => text.replaceAll("\u202f", " ");

describe("durations", () => {
  it.each([
    [0, "0 ns"],
    [7, "7 ns"],
    [999, "999 ns"],
    [1000, "1 µs"],
    [12_345, "12.35 µs"],
    [2_500_000, "2.5 ms"],
    [1e9, "1 s"],
    [90e9, "1 min 30.0 s"],
    [2 * 3600e9, "2.00 h"],
  ])("%d ns reads %s", (nanoseconds, text) => expect(plain(duration(nanoseconds))).toBe(text));
});

describe("times", () => {
  const clock = { base: 1457113582794565804n, begin: 0, ahead: 3600 };
  it("count from the trace's begin", () => {
    expect(plain(relative(1_234_567_890))).toBe("1.234 567 890 s");
    expect(plain(relative(-5))).toBe("−0.000 000 005 s");
    expect(plain(relative(1_500_000_000, 1))).toBe("1.5 s");
  });
  it("are exact to the nanosecond as time of day, unlike dates", () => {
    expect(plain(timeOfDay(clock, 0, true))).toBe("17:46:22.794 565 804 UTC");
    expect(plain(timeOfDay(clock, 1, false))).toBe("18:46:22.794 565 805");
    expect(plain(moment(clock, "utc", 205_434_196, 3))).toBe("17:46:23.000");
  });
});

describe("numbers", () => {
  it("have their digits in groups", () => expect(plain(grouped(100_000_000))).toBe("100 000 000"));
  it("above zero are never zero percent", () => {
    expect(plain(percent(1, 1e9))).toBe("< 0.1 %");
    expect(plain(percent(0, 5))).toBe("0 %");
    expect(plain(percent(1, 2))).toBe("50.0 %");
  });
});

describe("the ruler", () => {
  it("has marks at round distances", () => {
    expect(rulerStep(3)).toBe(5);
    expect(rulerStep(1100)).toBe(2000);
    expect(rulerStep(1.5e9)).toBe(2e9);
    expect(rulerStep(45e9)).toBe(60e9);
  });
  it("distinguishes marks of any distance", () => {
    expect(digitsFor(1e9)).toBe(0);
    expect(digitsFor(5e5)).toBe(4);
    expect(digitsFor(1)).toBe(9);
  });
  it("counts from an anchor if distances are short", () => {
    const ruler = rulerFor(5_000_000_123, 5_000_001_123, 1000, 130, 0);
    expect(ruler.short).toBe(true);
    expect(ruler.anchor).toBeLessThanOrEqual(5_000_000_123);
    expect(ruler.step).toBe(200);
  });
});

describe("sizes", () => {
  it.each([
    [0, "0 bytes"],
    [999, "999 bytes"],
    [1234, "1.2 kB"],
    [99_499, "99 kB"],
    [123_456, "123 kB"],
    [999_600, "1.0 MB"],
    [3_200_000_000, "3.2 GB"],
  ])("%d bytes read %s", (bytes, text) => expect(sizeText(bytes)).toBe(text));
});
