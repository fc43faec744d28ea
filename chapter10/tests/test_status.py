"""What a person is told about a job: never more than is known."""

from __future__ import annotations

import unittest
from typing import Any

from chapter10.companions.operating.status import status_text
from chapter10.jobs import FINAL_STATES, STATES, JobStore
from chapter10.tests.support import FolderTestCase


def status(state: str, **changes: Any) -> dict[str, Any]:
    return {"id": 1, "state": state, "attempt": 1, "done": 0, "total": 0, "error": None, **changes}


class StatusTestCase(FolderTestCase):
    """Sentences about jobs as the store shows them."""

    def test_a_second_attempt_is_never_one_curve_with_the_first(self) -> None:
        """The sentence names the attempt and counts from its start.

        Claims: C10-181, C10-182.
        """
        with JobStore(self.folder / "jobs.db") as store:
            job = store.submit("alice", "k", {"month": "2026-08"}, now=0)
            store.claim(job, now=1)
            store.progress(job, 1, 2, 3, now=2)
            self.assertEqual(status_text(store.get("alice", job)), "第一次尝试，已处理两条")
            store.fail(job, 1, "temporary", now=3, retry_after=1)
            self.assertEqual(status_text(store.get("alice", job)), "第一次尝试没有成功，等待下一次尝试")
            store.claim(job, now=4)
            store.progress(job, 2, 1, 3, now=5)
            self.assertEqual(status_text(store.get("alice", job)), "第二次尝试，已处理一条")

    def test_not_waiting_any_longer_is_not_a_failure(self) -> None:
        """A caller whose patience ended and a job whose time ended get two different sentences.

        Claims: C10-194.
        """
        self.assertEqual(
            status_text(status("running"), stopped_waiting=True), "暂时没有等到结果，作业仍在运行，可以稍后查看"
        )
        self.assertEqual(
            status_text(status("failed", error="deadline_exceeded"), stopped_waiting=True),
            "作业已超过截止时间，未提交本地结果",
        )

    def test_every_situation_has_its_own_sentence(self) -> None:
        """Six states, and the reasons within them, never share a text."""
        situations = [status(state, error="e" if state == "failed" else None) for state in STATES]
        situations += [status("queued", error="e"), status("failed", error="deadline_exceeded")]
        situations += [status("failed", error="attempts_exhausted")]
        situations += [status(state, attempt=9) for state in ("queued", "running")]
        for language in ("zh", "en"):
            sentences = {
                status_text(situation, stopped_waiting=situation["attempt"] == 9, language=language)
                for situation in situations
            }
            self.assertEqual(len(sentences), len(situations))
            self.assertEqual(language == "en", "".join(sentences).isascii())

    def test_stopping_to_wait_says_nothing_about_a_job_that_has_ended(self) -> None:
        """A final state is told as it is, however patient the caller was."""
        for state in FINAL_STATES:
            ended = status(state, error="e" if state == "failed" else None)
            self.assertEqual(status_text(ended, stopped_waiting=True), status_text(ended))

    def test_each_sentence_is_this_one(self) -> None:
        """What is at work is told with its attempt, what has ended with what was stored."""
        for state, changes, sentence in (
            ("queued", {}, "已受理，等待处理"),
            ("queued", {"attempt": 2, "error": "e"}, "第二次尝试没有成功，等待下一次尝试"),
            ("running", {}, "第一次尝试，已处理零条"),
            ("running", {"attempt": 2, "done": 2}, "第二次尝试，已处理两条"),
            ("running", {"attempt": 3, "done": 9}, "第三次尝试，已处理九条"),
            ("cancel_requested", {}, "第一次尝试，已请求取消，等待确认停止"),
            ("succeeded", {}, "已完成，可以读取结果"),
            ("cancelled", {}, "已确认取消，未提交本地结果"),
            ("failed", {"error": "deadline_exceeded"}, "作业已超过截止时间，未提交本地结果"),
            ("failed", {"error": "attempts_exhausted"}, "允许的尝试次数已用完，未提交本地结果"),
            ("failed", {"error": "bad_month"}, "作业失败，错误代码 bad_month"),
        ):
            self.assertEqual(status_text(status(state, **changes)), sentence)
        for state, doing in (("queued", "排队"), ("running", "运行")):
            sentence = f"暂时没有等到结果，作业仍在{doing}，可以稍后查看"
            self.assertEqual(status_text(status(state), stopped_waiting=True), sentence)

    def test_large_numbers_are_digits(self) -> None:
        """Ten is the last number that is written out."""
        self.assertEqual(status_text(status("running", attempt=10, done=10)), "第十次尝试，已处理十条")
        self.assertEqual(status_text(status("running", attempt=11, done=3000)), "第11次尝试，已处理3000条")

    def test_a_state_that_no_job_has_is_refused(self) -> None:
        """A sentence is not invented."""
        with self.assertRaises(ValueError):
            status_text(status("done"))


if __name__ == "__main__":
    unittest.main()
