"""The page that plays: its answers are the store's, its script is small and alone, its challenges are what they say."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import random
import re
import unittest
from functools import cache
from html import escape
from typing import Any
from unittest import mock

from chapter10.canonical import CodedError
from chapter10.companions.work.living_store import LivingStore
from chapter10.jobs import JobStore
from chapter10.lab.histories.guards import guard_named, mark_of, store_without
from chapter10.lab.histories.world import MONTHS, TOTAL, Action, Content
from chapter10.lab.scheduler import page
from chapter10.lab.scheduler.packing import LETTERS, pack, unpack
from chapter10.lab.scheduler.play import CHALLENGES, START, Position, met, moves, play, possible, shortest, turn
from chapter10.lab.scheduler.recorder import MAX_NEW, PLAYED, WORLD, Recording, asked
from chapter10.lab.scheduler.words import TEXTS
from chapter10.tests.support import TOP

MAX_PAGE, MAX_SCRIPT = 150_000, 12 * 1024
WHOLE = ""


@cache
def text() -> str:
    """The page as it lies in the tree; CI writes it anew and compares."""
    return (TOP / "reports" / page.PAGE).read_text(encoding="utf-8")


@cache
def data() -> dict[str, Any]:
    """What the script reads."""
    found: dict[str, Any] = json.loads(text().split('id="data">', 1)[1].split("</script>", 1)[0])
    return found


@cache
def recordings() -> dict[str, Recording]:
    """The recordings of the page by the guard that is out."""
    whole, without = unpack(data())
    return {WHOLE: whole, **without}


class Real:
    """The real store, played move by move from nothing."""

    def __init__(self, store: type[JobStore]) -> None:
        self.store: Any = store(":memory:")

    def reset(self) -> None:
        """Begin anew, with the first number."""
        for table in ("receipts", "events", "jobs", "sqlite_sequence"):
            self.store.db.execute(f"DELETE FROM {table}")

    def answer(self, now: int, move: Action) -> Any:
        """Make a move; return what it returned, the code that it raised, or the error that nobody declared."""
        try:
            found = self._call(now, move)
        except CodedError as error:
            return error.code
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return {name: count for name, count in found.items() if count} if isinstance(found, dict) else found

    def _call(self, now: int, move: Action) -> Any:
        store, attempt = self.store, move.attempt
        verb = move.verb.removesuffix(", answer lost")
        if verb.startswith("submit"):
            month = MONTHS[verb != "submit"]
            return store.submit(
                "alice", "report", {"month": month}, now=now, deadline=now + WORLD.deadline,
                max_attempts=WORLD.attempts, capacity=WORLD.capacity,
            )  # fmt: skip
        if verb == "look and cancel":
            found = []
            for look in ("get", "events", "result", "cancel"):
                try:
                    getattr(store, look)("mallory", 1)
                    found.append(f"{look} answered")
                except CodedError as error:
                    found.append(f"{look} {error.code}")
            return ", ".join(found)
        calls = {
            "cancel": lambda: store.cancel("alice", 1, now=now),
            "sweep": lambda: store.sweep(now=now),
            "claim": lambda: store.claim(1, now=now, lease=WORLD.lease),
            "progress": lambda: store.progress(1, attempt, move.number, TOTAL, now=now),
            "finish": lambda: store.finish(1, attempt, {"by": attempt}, now=now),
            "fail": lambda: store.fail(1, attempt, "broken", now=now),
            "retry": lambda: store.fail(1, attempt, "temporary", now=now, retry_after=WORLD.retry_after),
            "renew": lambda: store.renew(1, attempt, now=now, lease=WORLD.lease),
        }
        return calls[verb]()

    def rows(self, content: Content) -> tuple[list[Any], list[Any]]:
        """Return the rows of jobs and receipts, with the columns that a content has."""
        names = ", ".join(content.rows[0]._fields) if content.rows else "id"
        jobs = self.store.db.execute(f"SELECT {names} FROM jobs ORDER BY id").fetchall()
        return jobs, self.store.db.execute("SELECT job_id, attempt, sha256, data FROM receipts").fetchall()

    def events(self, after: int) -> list[tuple[int, str, str]]:
        """Return the events behind the first `after`."""
        found = self.store.db.execute("SELECT attempt, kind, detail FROM events ORDER BY seq").fetchall()
        return [tuple(event) for event in found[after:]]


class TheAnswers(unittest.TestCase):
    """Whatever is played, the page answers as the store does."""

    def replay(self, name: str, real: Real, chance: random.Random) -> int:
        """Play at random by a recording and beside it with the real store; return how many calls agreed."""
        real.reset()
        position, events, calls = START, 0, 0
        for _ in range(10):
            found = turn(recordings()[name], position, chance.choice(moves(position)))
            if found is None:  # further than was recorded
                break
            if found.outcome is not None:
                calls += 1
                self.assertEqual(real.answer(position.now, found.move), found.outcome.answer, (name, found))
                added = real.events(events)
                events += len(added)
                self.assertEqual(added, list(found.outcome.events), (name, found))
                rows, receipts = list(map(tuple, found.after.content.rows)), list(found.after.content.receipts)
                self.assertEqual(real.rows(found.after.content), (rows, receipts), (name, found))
            position = found.after
        return calls

    def test_two_thousand_random_plays_agree_with_the_store(self) -> None:
        """With every guard: each answer, the events and all rows."""
        chance, real = random.Random(17), Real(LivingStore)
        with contextlib.closing(real.store):
            self.assertGreater(sum(self.replay(WHOLE, real, chance) for _ in range(2000)), 8_000)

    def test_without_each_guard_plays_agree_with_the_store_that_lacks_it(self) -> None:
        """Twenty plays for each guard, against a real store without it."""
        for guard in PLAYED:
            real = Real(store_without(guard, LivingStore))
            with self.subTest(guard.name), contextlib.closing(real.store):
                chance = random.Random(guard.name)
                self.assertGreater(sum(self.replay(guard.name, real, chance) for _ in range(20)), 60)

    def test_every_place_answers_every_move(self) -> None:
        """From all that the whole store can hold, at every time at which it can."""
        places = recordings()[WHOLE].outcomes
        self.assertEqual(len({content for content, _ in places}), len(data()["contents"]) // 11)
        for (content, now), answers in places.items():
            self.assertEqual(list(answers), list(asked(content)))
            self.assertTrue(now == WORLD.until or (content, now + 1) in places)
        following = {outcome.content for answers in places.values() for outcome in answers.values()}
        self.assertEqual(following - {content for content, _ in places}, set())

    def test_a_store_without_a_guard_goes_on_to_so_many_new_contents(self) -> None:
        """What is further than that is said to be unrecorded, and is nowhere that the whole store would lead."""
        known = {content for content, _ in recordings()[WHOLE].outcomes}
        new = {name: len({content for content, _ in found.outcomes} - known) for name, found in recordings().items()}
        self.assertEqual((max(new.values()), new[WHOLE]), (MAX_NEW, 0))

    def test_what_is_packed_is_unpacked(self) -> None:
        """Also what the whole store holds only later, and places that answer alike though their neighbours do not."""
        names = ("ended.renew", "owner.cancel")
        without = {name: recordings()[name] for name in names}
        whole, found = unpack(json.loads(json.dumps(pack(recordings()[WHOLE], without))))
        self.assertEqual(whole, recordings()[WHOLE])
        self.assertEqual(found, without)


class TheChallenges(unittest.TestCase):
    """Deliver twice; finish after a cancel; let a late worker win."""

    def test_none_is_possible_with_every_guard(self) -> None:
        """Nor with a guard that has nothing to do with it; the page names those that have."""
        for challenge, (_, *names) in zip(CHALLENGES, data()["challenges"], strict=True):
            able = [name for name, recording in recordings().items() if possible(recording, challenge)]
            self.assertEqual(able, names)
            self.assertNotIn(WHOLE, able)

    def test_each_is_done_in_so_many_moves_without_the_right_guard(self) -> None:
        """The fewest that are known, over all guards that stand in its way."""
        fewest = [[len(shortest(recordings()[name], challenge)) for name in names]
                  for challenge, (_, *names) in zip(CHALLENGES, data()["challenges"], strict=True)]  # fmt: skip
        self.assertEqual([min(counts) for counts in fewest], [count for count, *_ in data()["challenges"]])
        self.assertEqual([min(counts) for counts in fewest], [4, 4, 6])

    def test_the_history_of_each_guard_breaks_a_promise_at_its_last_move(self) -> None:
        """And the page names the line that was taken out."""
        for guard in PLAYED:
            about, position, broken = data()["guards"][guard.name], START, []
            for letter in about["history"]:
                found = turn(recordings()[guard.name], position, moves(position)[LETTERS.index(letter)])
                assert found is not None
                broken.append(found.outcome.broken if found.outcome else "")
                position = found.after
            mark = mark_of(guard_named(guard.name))
            with self.subTest(guard.name):
                self.assertTrue(broken[-1].startswith("J") and not any(broken[:-1]), broken)
                self.assertEqual((about["where"], about["line"]), (mark.path, mark.text))

    def test_each_challenge_is_one_of_its_own(self) -> None:
        """The fewest moves for one do no other."""
        for number, (challenge, (_, *names)) in enumerate(zip(CHALLENGES, data()["challenges"], strict=True)):
            last = play(recordings()[names[-1]], shortest(recordings()[names[-1]], challenge))[-1]
            self.assertEqual([met(each, last) for each in CHALLENGES], [number == n for n in range(len(CHALLENGES))])

    def test_a_process_that_died_has_nothing_and_may_claim_again(self) -> None:
        """It cannot deliver any more; the other one knows what it knew."""
        worker = Action("worker A", "claim", 1)
        turns = play(recordings()[WHOLE], [Action("alice", "submit", 1), worker, Action("worker A", "die")])
        self.assertEqual(turns[-1].after, turns[0].after._replace(content=turns[1].after.content))
        self.assertIn(worker, moves(turns[-1].after))

    def test_what_cannot_be_played_is_named(self) -> None:
        """A move that is not possible there, such as a claim before there is a job."""
        with self.assertRaisesRegex(ValueError, "claim"):
            play(recordings()[WHOLE], [Action("worker A", "claim", 1)])
        still = Position(START.content, WORLD.until, ((), ()), (0, 1))
        self.assertEqual([move.verb for move in moves(still)], ["submit", "sweep", "wake", "wake"])


class ThePage(unittest.TestCase):
    """One file that needs nothing."""

    def test_it_is_what_its_parts_give(self) -> None:
        """Script, style, words and story are those of the tree; the answers are compared by CI, which asks anew."""
        self.assertEqual(page.written(recordings()[WHOLE], data()), text())

    def test_the_browser_lets_nothing_else_run(self) -> None:
        """Its policy names this script and this style by their hashes, and nothing besides."""
        style, script = (text().split(f"<{tag}>")[1].split(f"</{tag}>")[0] for tag in ("style", "script"))
        hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (style, script)]
        policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text())
        rest = "base-uri 'none'; form-action 'none'"
        wanted = f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; {rest}"
        self.assertEqual(policy, [wanted])
        self.assertEqual(re.findall(r'\s(?:on\w+|style|src)="', text()), [])

    def test_it_is_small_and_its_script_is_plain(self) -> None:
        """No network, no storage, no clock, no code from a text, no animation, no library."""
        script = text().split("<script>")[1].split("</script>")[0]
        self.assertLess(len(text().encode()), MAX_PAGE)
        self.assertLess(len(script.encode()), MAX_SCRIPT)
        banned = r"fetch|XMLHttp|WebSocket|import|require|[sS]torage|indexedDB|cookie|setTimeout|setInterval"
        found = re.findall(rf"{banned}|requestAnimation|innerHTML|eval|Function\(|Date|random", script)
        self.assertEqual(found + re.findall("animation|transition|url\\(|@import", text().split("<style>")[1]), [])

    def test_without_the_script_it_tells_the_late_worker_in_both_languages(self) -> None:
        """Each step, the three tables at the end, and every promise."""
        for language in ("zh", "en"):
            for step in play(recordings()[WHOLE], page.STORY):
                self.assertIn(f'<span lang="{language}">{escape(page.sentence(step, language))}</span>', text())
        self.assertIn("<td>succeeded</td>", text())
        self.assertEqual(re.findall(r'<li id="(J\d+)">', text()), [f"J{number}" for number in range(12)])

    def test_each_answer_of_the_store_is_explained(self) -> None:
        """Only an error that no verb declares, which takes a missing guard, has the one sentence for all of those."""
        places = {id(answers): answers for found in recordings().values() for answers in found.outcomes.values()}
        said = {
            (action.verb, str(outcome.answer)): outcome.answer
            for answers in places.values()
            for action, outcome in answers.items()
        }
        self.assertGreater(len(said), 50)
        for (verb, shown), answer in said.items():
            text = json.dumps(answer, separators=(",", ":"))
            names = {f"said {verb}:{text}", f"said {text}", f"said {verb}"}
            self.assertTrue(names & TEXTS.keys() or "Error" in shown, (verb, shown))

    def test_the_command_says_how_large_it_is_and_whether_it_is_fresh(self) -> None:
        """Without a flag nothing is written."""
        with mock.patch.object(page, "page", return_value="another page"):
            for flags, code, said in (([], 0, "12 bytes"), (["--check"], 1, page.PAGE)):
                out = io.StringIO()
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                    self.assertEqual(page.main(flags), code)
                self.assertIn(said, out.getvalue())


if __name__ == "__main__":
    unittest.main()
