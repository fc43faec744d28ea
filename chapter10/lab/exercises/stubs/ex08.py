"""练习 8 / Exercise 8

五个互不依赖的调用，并发上限二，其中一个会失败。写出 read_all：每个调用 ID 都有结果，在途从不超过二，
外层取消仍能传播。检查会走遍答案到来的所有次序，并画出最短的一个错误次序。

Five independent calls, at most two in flight, one of them fails. Write read_all so that every call id has
an outcome, never more than two reads are in flight, and a cancel from outside still arrives. The check
tries every order in which answers can come and draws the shortest one that goes wrong.

章节要的是一个测试；这里先要代码。两样都可以做：在文件末尾加上 def test_read_all(read_all)，用 assert 断言，检查会
拿它去试一个对的和三个错的写法。差别：测试只走一个次序，检查走遍所有次序。

The chapter asks for a test, this file for the code. Do both if you like: add def test_read_all(read_all) at the
end, with assert in it, and the check tries it on one right way and three wrong ones. The difference: a test takes
one order of answers, the check takes all of them.

检查 / check:  python -m chapter10 exercises check 8
"""

from collections.abc import Awaitable, Callable
from typing import Any


async def read_all(
    calls: list[tuple[str, str]], read: Callable[[str], Awaitable[Any]], limit: int
) -> dict[str, dict[str, Any]]:
    """Await `read(argument)` for every `(call_id, argument)`, at most `limit` at a time.

    Return call_id -> {"value": what read returned} or {"error": the name of the exception's class}.
    """
    raise NotImplementedError
