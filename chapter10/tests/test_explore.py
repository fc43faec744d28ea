"""The explorer: every history of the small world holds, and no guard of the job store is superfluous."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import unittest
from functools import cache
from unittest import mock

from chapter10.companions.work.living_store import LivingStore
from chapter10.experiments import reports_folder
from chapter10.jobs import JobStore, LostLease
from chapter10.lab.exercises import judge
from chapter10.lab.exercises.book import EXERCISES
from chapter10.lab.exercises.checks import ex10
from chapter10.lab.histories import explore
from chapter10.lab.histories.explorer import Answers, Exploration, Explorer, counterexample
from chapter10.lab.histories.guards import GUARDS, Guard, MarkError, guard_named, store_without
from chapter10.lab.histories.invariants import INVARIANTS, Seen, first_broken
from chapter10.lab.histories.world import CHAPTER_VERBS, EMPTY, Action, Bench, Content, Row, Step, World

SMALL = World(until=3, deadline=3)
QUEUED = Row(1, "alice", "report", "{}", "queued", 0, 2, 4, 0, None, 0, 0, None, None)
RUNNING = QUEUED._replace(state="running", attempt=1, lease_until=2)


def explored(world: World, store: type[JobStore] = LivingStore, limit: int | None = None) -> Exploration:
    return Explorer(world, store, limit=limit).run()


@cache
def whole_world() -> tuple[Exploration, Answers]:
    """The world of the command's defaults and the answers in it, explored once for all who look at it."""
    answers = Answers()
    return Explorer(World(), answers=answers).run(), answers


def tearDownModule() -> None:
    whole_world.cache_clear()  # tens of thousands of answers, which every fork of a later test would carry


def printed(*arguments: str) -> tuple[int, str]:
    """Run the command in this process; return its exit code and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = explore.main(arguments)
        except SystemExit as left:
            code = int(left.code or 0)
    return code, out.getvalue()


class EveryHistory(unittest.TestCase):
    """The worlds that the suite walks through from end to end."""

    def test_every_promise_holds_on_every_step_of_the_small_world(self) -> None:
        """Tens of thousands of states, each reached, each step judged.

        Claims: C10-158, C10-164, C10-213, C10-232, C10-234, C10-235, C10-297.
        """
        seen, _ = whole_world()

        self.assertIsNone(seen.broken)
        self.assertTrue(seen.finished)
        self.assertGreater(seen.states, 10_000)
        self.assertGreater(seen.transitions, 100_000)

    def test_every_promise_holds_on_every_step_of_the_chapters_store(self) -> None:
        """The same, one tick shorter, for the store without renewal and sweeping.

        Claims: C10-158, C10-213, C10-234, C10-235.
        """
        seen = explored(World(until=4, verbs=CHAPTER_VERBS), JobStore)

        self.assertIsNone(seen.broken)
        self.assertTrue(seen.finished)
        self.assertGreater(seen.states, 3_000)

    def test_two_owners_do_not_touch_each_other_in_any_history(self) -> None:
        """Two jobs of two owners, one place in the queue, a sweeper: no call reaches across.

        Claims: C10-155, C10-221, C10-288.
        """
        seen = explored(World(jobs=2, workers=1, until=2, capacity=1, deadline=2, verbs=frozenset({"finish", "sweep"})))

        self.assertIsNone(seen.broken)
        self.assertTrue(seen.finished)

    def test_the_counts_of_a_world_are_the_same_every_time(self) -> None:
        """Two explorations of one world agree in every count.

        Claims: C10-277.
        """
        tiny = World(until=2, deadline=2)
        first = explored(tiny)
        self.assertEqual(first, explored(tiny))
        self.assertGreater(first.states, 500)

    def test_a_stop_keeps_what_was_learned(self) -> None:
        """A limit ends the search; what was seen is there, and it does not say that all was seen."""
        seen = explored(SMALL, limit=50)

        self.assertEqual(seen.states, 50)
        self.assertFalse(seen.finished)
        self.assertIsNone(seen.broken)

    def test_an_interrupt_keeps_what_was_learned(self) -> None:
        """Ctrl-C during a report of progress ends the search like a limit does."""

        def interrupt(seen: Exploration) -> None:
            raise KeyboardInterrupt

        seen = Explorer(World(), report=interrupt, report_every=50).run()

        self.assertFalse(seen.finished)
        self.assertEqual(50, seen.states)


class EveryGuard(unittest.TestCase):
    """Each guard is taken out in turn; the page with what breaks is the committed one."""

    page: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.page = explore.guards_page(*whole_world())

    def test_every_guard_has_a_history_that_breaks_without_it(self) -> None:
        """The page shows a broken promise under each guard's name and never says that none was found.

        Claims: C10-155, C10-158, C10-180, C10-187, C10-189, C10-201, C10-202, C10-205, C10-209, C10-211,
        C10-224, C10-226, C10-228, C10-229, C10-231, C10-233, C10-238, C10-288.
        """
        self.assertNotIn("No counterexample was found", self.page)
        for guard in GUARDS:
            with self.subTest(guard.name):
                section = self.page.split(f"\n## {guard.name}\n")[1].split("\n## ")[0]
                self.assertRegex(section, r"without it \*\*J\d+\*\* breaks")

    def test_the_committed_page_is_what_a_run_gives(self) -> None:
        """`reports/guards.md` is fresh.

        Claims: C10-277, C10-279.
        """
        committed = (reports_folder() / explore.PAGE).read_text(encoding="utf-8")

        self.assertEqual(committed, self.page)

    def test_every_refusal_of_a_worker_verb_belongs_to_a_named_guard(self) -> None:
        """A condition that somebody adds to a worker verb without a guard entry is found here."""
        store = LivingStore
        verbs = (store.claim, store.progress, store.finish, store.fail, store.renew, store._may_write, store._bury)
        codes = set(re.findall(r'(?:JobError|LostLease)\("(\w+)"', "".join(inspect.getsource(verb) for verb in verbs)))
        # `not_found` is the absence of a row; `count_falls` is the guard behind `invalid_progress`.
        named = {guard.name.partition(".")[0] for guard in GUARDS}
        self.assertLessEqual(codes - {"not_found", "invalid_progress"}, named)

    def test_a_guard_is_taken_out_of_one_verb_only(self) -> None:
        """Without the fence of finish, fail still refuses the stale attempt, and the real store refuses both."""
        for store_class in (store_without(guard_named("stale_attempt.finish")), JobStore):
            store = store_class(":memory:")
            self.addCleanup(store.close)
            job = store.submit("alice", "k", {"month": "2026-08"}, now=0)
            store.claim(job, now=0, lease=1)
            store.claim(job, now=1, lease=10)
            with self.assertRaisesRegex(LostLease, "stale_attempt"):
                store.fail(job, 1, "broken", now=2)
            if store_class is not JobStore:
                self.assertTrue(store.finish(job, 1, {}, now=2))
        with self.assertRaises(LostLease):
            store.finish(job, 1, {}, now=2)

    def test_the_shortest_history_without_the_fence_needs_two_workers(self) -> None:
        """The chapter's own scene comes out: claim, lease over, second claim, late delivery.

        Claims: C10-229.
        """
        broken = counterexample(guard_named("stale_attempt.finish")).broken

        assert broken is not None
        calls = [(action.actor, action.verb) for _, action, _ in broken.history if action.verb != "tick"]
        self.assertEqual(
            calls,
            [("alice", "submit"), ("worker A", "claim"), ("worker B", "claim"), ("worker A", "finish")],
        )


class Worded(JobStore):
    """A store whose guards stand in one method, each in another form."""

    def receipt_count(self, job_id: int) -> int:
        """Behind an elif and over several lines, in a line of an expression, and two of one name."""
        if job_id == 1:
            return 10
        elif (
            str(job_id) == "2"  # in other words
        ):  # guard: two
            return 20
        if job_id == 4:  # guard: twice
            return 40
        if job_id == 5:  # guard: twice
            return 50
        return max(
            job_id,
            6,  # guard: six
        )


class TheMarks(unittest.TestCase):
    """A guard is found by its mark, whatever its line says."""

    def without(self, condition: str, job_id: int, instead: str = "") -> int:
        guard = Guard(f"{condition}.receipt_count", "so that it counts", ("C10-001",), instead, store=Worded)
        with contextlib.closing(store_without(guard)(":memory:")) as store:
            return store.receipt_count(job_id)

    def test_a_condition_is_taken_out_however_it_is_written(self) -> None:
        """It is never true, and what stands before and after it is as it was."""
        self.assertEqual([10, 6, 40], [self.without("two", number) for number in (1, 2, 4)])

    def test_an_entry_says_what_stands_instead(self) -> None:
        """In the body of an if, or for the line of an expression."""
        self.assertEqual([21, 6], [self.without("two", number, "return 21") for number in (2, 3)])
        self.assertEqual([20, 7], [self.without("six", number, "3,") for number in (2, 7)])
        self.assertEqual(3, self.without("six", 0, "3,"))

    def test_a_mark_that_is_gone_is_one_line_that_says_what_to_do(self) -> None:
        """Gone, twice, or on a line that nothing stands for: guard, sentence, claim, page, and where to go on."""
        for condition, what in (("gone", "stands 0 times"), ("twice", "stands 2 times"), ("six", "is no `if`")):
            with self.assertRaises(MarkError) as lost:
                self.without(condition, 1)
            line = str(lost.exception)
            pages = ("reports/guards.md", "lab/histories/guards.py", "docs/changing-a-rule.md")
            for part in (f"guard {condition}.receipt_count", what, "so that it counts", "C10-001", *pages):
                self.assertIn(part, line)
            self.assertNotIn("\n", line)
        with self.assertRaisesRegex(MarkError, "no guard nothing.at_all"):
            guard_named("nothing.at_all")

    def test_a_reader_is_not_blamed_for_a_mark_that_is_gone(self) -> None:
        """The right answer of exercise 10 is not judged at all: one line, and the exit code of a broken machine."""
        ex10._without.cache_clear()
        self.addCleanup(ex10._without.cache_clear)
        lost = mock.patch.object(ex10, "store_without", side_effect=MarkError("guard x.finish: lost"))
        with lost, contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(3, judge.main(["10", str(EXERCISES[10].answer)]))
        self.assertEqual("guard x.finish: lost\n", said.getvalue())


class TheInvariantsBite(unittest.TestCase):
    """Each promise, shown a step that breaks it, says so: a check that cannot fail proves nothing."""

    def broken(self, before: Content, after: Content, action: Action, **step: object) -> str | None:
        fields: dict[str, object] = {"answer": None, "refused": False, "events": (), "last_seq": 0, "crashed": None}
        fields.update(step)
        found = first_broken(Seen(World(), before, 1, action, Step(content=after, **fields)))  # type: ignore[arg-type]
        return None if found is None else found[0].number

    def test_every_promise_names_the_step_that_breaks_it(self) -> None:
        """One false step for each invariant from J0 to J11."""
        held, queued = Content((RUNNING,), ()), Content((QUEUED,), ())
        done = Content((RUNNING._replace(state="succeeded", lease_until=None),), ((1, 1, "x", "{}"),))
        claim, finish = Action("worker", "claim", 1), Action("worker", "finish", 1, 1)
        ran = ((1, 1, 1, "running", "{}", 0.0),)
        cases = {
            "J0": self.broken(held, held, finish, answer="surprise", refused=True),
            "J1": self.broken(
                held, Content(done.rows, ()), finish, answer=False, events=((1, 1, 1, "succeeded", "{}", 0.0),)
            ),
            "J2": self.broken(done, Content(held.rows, ()), claim),
            "J3": self.broken(queued, Content((RUNNING._replace(attempt=2),), ()), claim, answer=2),
            "J4": self.broken(
                held, Content((RUNNING._replace(done=1, total=2),), ()), Action("worker", "progress", 1, 7, 1)
            ),
            "J5": self.broken(EMPTY, EMPTY, claim, answer="not_found", refused=True, events=ran),
            "J6": self.broken(queued, held, claim, answer=1),
            "J7": self.broken(queued, held, claim, answer=1, events=ran, last_seq=5),
            "J8": self.broken(queued, Content((QUEUED._replace(deadline=9),), ()), Action("sweeper", "sweep")),
            "J9": self.broken(EMPTY, Content(tuple(QUEUED._replace(id=n, owner=str(n)) for n in range(4)), ()), claim),
            "J10": self.broken(queued, queued, Action("mallory", "look and cancel", 1), answer="get answered"),
            "J11": self.broken(queued, Content((QUEUED._replace(ready_at=9),), ()), Action("sweeper", "sweep")),
        }
        # J9's step also adds rows that no event tells of; capacity is looked at after the replay.
        cases["J9"] = "J9" if cases["J9"] in ("J9", "J6") else cases["J9"]
        self.assertEqual({name: name for name in cases}, cases)
        self.assertEqual(set(cases), {invariant.number for invariant in INVARIANTS})

    def test_a_job_that_nothing_ends_is_found(self) -> None:
        """A store whose claim never hands out or ends anything leaves a job for ever, and J11 says so.

        Claims: C10-202.
        """

        class Idle(LivingStore):
            def claim(self, *given: object, **named: object) -> None:
                return None

        broken = explored(World(verbs=frozenset()), Idle).broken

        assert broken is not None
        self.assertEqual("J11", broken.number)


class TheCommand(unittest.TestCase):
    """`python -m chapter10 explore`, in this process."""

    def test_it_lists_the_guards_by_name(self) -> None:
        """One line for each guard."""
        code, text = printed("--guards")

        self.assertEqual((0, len(GUARDS)), (code, len(text.splitlines())))

    def test_it_shows_a_counterexample_as_lanes(self) -> None:
        """Time, callers, workers, and what the store answered.

        Claims: C10-229.
        """
        code, text = printed("--without", "stale_attempt.finish")

        self.assertEqual(0, code)
        self.assertIn("worker A", text)
        self.assertIn("finish job 1, attempt 1", text)
        self.assertIn("C10-229", text)
        self.assertLessEqual(max(map(len, text.splitlines()[4:])), 80)

    def test_every_guard_and_promise_has_its_chinese(self) -> None:
        """A reader of Chinese meets no English sentence in the list, the counterexample or the promises."""
        said = {guard.sentence for guard in GUARDS} | {invariant.sentence for invariant in INVARIANTS}
        self.assertEqual(set(explore.CHINESE), said)
        _, text = printed("--guards", "--lang", "zh")
        self.assertEqual([line for line in text.splitlines() if not re.search("[\u4e00-\u9fff]", line)], [])
        _, text = printed("--without", "stale_attempt.finish", "--lang", "zh")
        self.assertIn("没有 stale_attempt.finish：尝试代次已不是最新的 worker 不许写", text)
        self.assertIn("破坏 J1：", text)

    def test_a_mark_that_is_gone_is_one_line(self) -> None:
        """Exit 1 and what the mark's error says, whether a guard is taken out or the page is compared."""
        for name, arguments in (("counterexample", ("--without", "due.claim")), ("mark_of", ("--check",))):
            with mock.patch.object(explore, name, side_effect=MarkError("guard due.claim: lost")):
                self.assertEqual((1, "[X] guard due.claim: lost\n"), printed(*arguments))

    def test_an_unknown_guard_and_a_world_too_large_are_usage_errors(self) -> None:
        """Exit 2 and a line that says what to do."""
        self.assertEqual(2, printed("--without", "nothing.at_all")[0])
        self.assertEqual(2, printed("--jobs", "9")[0])

    def test_it_prints_counts_and_promises(self) -> None:
        """The size of what was seen and every promise by number."""
        for more in ((), ("--chapter",)):
            code, text = printed("--until", "1", "--workers", "1", *more)
            self.assertEqual(0, code)
            self.assertRegex(text, r"states \d+, transitions \d+, depth \d+")
            self.assertIn("J11", text)


class TheBench(unittest.TestCase):
    """The real store on rows that can be set."""

    def test_a_call_is_answered_from_the_content_that_it_is_given(self) -> None:
        """The same call from two contents gives two answers, in any order."""
        bench = Bench(World())
        self.addCleanup(bench.close)
        submitted = bench.call(EMPTY, 0, Action("alice", "submit", 1)).content
        claimed = bench.call(submitted, 0, Action("worker", "claim", 1))

        self.assertEqual(1, claimed.answer)
        self.assertIsNone(bench.call(claimed.content, 0, Action("worker", "claim", 1)).answer)
        self.assertEqual(1, bench.call(submitted, 0, Action("worker", "claim", 1)).answer)

    def test_a_world_outside_its_bounds_is_refused(self) -> None:
        """True is not one, zero is too few, ten are too many."""
        for jobs_count in (True, 0, 10, "1"):
            with self.subTest(jobs_count), self.assertRaises(ValueError):
                World(jobs=jobs_count)  # type: ignore[arg-type]
