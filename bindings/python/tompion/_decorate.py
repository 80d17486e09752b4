"""Spans as decorators: of functions, coroutines, generators and asynchronous generators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any


def _steps(again: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """A generator's span lasts as long as a thread runs it: from each step to the next `yield`."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        inner = function(*args, **kwargs)
        advance, argument = inner.send, None
        while True:
            try:
                with again():
                    value = advance(argument)
            except StopIteration as end:
                return end.value
            try:
                argument = yield value
                advance = inner.send
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:  # noqa: B902 - passed on to the generator
                advance, argument = inner.throw, error

    return wrapper


def _async_steps(again: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        inner = function(*args, **kwargs)
        advance, argument = inner.asend, None
        while True:
            try:
                with again():
                    value = await advance(argument)
            except StopAsyncIteration:
                return
            try:
                argument = yield value
                advance = inner.asend
            except GeneratorExit:
                await inner.aclose()
                raise
            except BaseException as error:  # noqa: B902 - passed on to the generator
                advance, argument = inner.athrow, error

    return wrapper


def decorate(span: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with a span around each call, or around each step of a generator."""
    again = span.again
    if inspect.isasyncgenfunction(function):
        return _async_steps(again, function)
    if inspect.isgeneratorfunction(function):
        return _steps(again, function)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with again():
                return await function(*args, **kwargs)

        return coroutine

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with again():
            return function(*args, **kwargs)

    return wrapper
