"""The experiments on budget, interruption, retry, breaker, idempotency, outbox and mail: each shows what it says.

The figures are computed by the modules themselves on logical and virtual time. What is asserted here is what the words
of each group claim, so that a changed rule changes a test and not only a page.
"""

from __future__ import annotations

import unittest
from typing import Any

from chapter10.lab.effect_scenes import breaker, budget, idempotency, interruption, mail, outbox, retry
from chapter10.lab.evidence.evidence import Group
from chapter10.lab.evidence.virtual_time import VirtualTimeError, pause, run_virtual
from chapter10.tests.shared import companion_run as played

GROUPS: dict[str, Group] = {
    "budget": budget.GROUP,
    "interruption": interruption.GROUP,
    "retry": retry.GROUP,
    "breaker": breaker.GROUP,
    "idempotency": idempotency.GROUP,
    "outbox": outbox.GROUP,
    "mail": mail.GROUP,
}


def figures(group: str) -> Any:
    return played(group)[0]


def by(rows: list[dict[str, Any]], name: str, value: object) -> dict[str, Any]:
    """The one row of a table that has `value` in the column `name`."""
    (found,) = [row for row in rows if row[name] == value]
    return found


class EveryGroup(unittest.TestCase):
    """What all of them keep to."""

    def test_tables_are_tables_and_words_name_figures(self) -> None:
        """Each row of a table has the same members, and the text finds every figure that it names."""
        for name, group in GROUPS.items():
            with self.subTest(group=name):
                for table in group.tables:
                    rows = figures(name)[table]
                    self.assertEqual({tuple(row) for row in rows}, {tuple(rows[0])})
                self.assertNotIn("{", group.text.format(**figures(name)))

    def test_time_runs_forward_in_every_picture(self) -> None:
        """Logical seconds never fall within a part."""
        for name in GROUPS:
            for title, events in played(name)[1].parts:
                with self.subTest(group=name, part=title):
                    self.assertTrue(events)
                    self.assertEqual([event.t for event in events], sorted(event.t for event in events))

    def test_the_states_are_those_of_the_documents(self) -> None:
        """What is drawn is what was looked up between the steps; a final state is left by no arrow. Claims: I4-075."""
        breaker_edges = {(before, after) for before, after, _ in played("breaker")[1].transitions}
        self.assertEqual(
            breaker_edges,
            {("closed", "open"), ("open", "half-open"), ("half-open", "open"), ("half-open", "closed")},
        )
        record_edges = {(before, after) for before, after, _ in played("idempotency")[1].transitions}
        self.assertEqual(
            record_edges,
            {
                ("absent", "in_progress"),
                ("in_progress", "unknown"),
                ("in_progress", "completed"),
                ("unknown", "completed"),
                ("unknown", "absent"),
            },
        )

    def test_no_group_claims_exactly_once(self) -> None:
        """The word stands only where it is denied. Claims: C10-241, I4-052."""
        for name, group in GROUPS.items():
            for line in group.text.replace("\n", " ").split("."):
                if "exactly-once" in line:
                    self.assertRegex(line, r"None of this|No combination|没有一种", name)


class VirtualTime(unittest.TestCase):
    """Waits that take no time."""

    def test_waiting_for_nothing_ends_with_an_error(self) -> None:
        """A program that nothing can wake does not hang."""

        async def main(loop: Any) -> None:
            await loop.create_future()

        with self.assertRaises(VirtualTimeError) as caught:
            run_virtual(main)
        self.assertEqual(caught.exception.code, "nothing_to_wait_for")

    def test_a_task_that_is_left_over_is_stopped(self) -> None:
        """It is cancelled before the loop closes, and its clean-up runs."""
        seen: list[str] = []

        async def late() -> None:
            try:
                await pause(1000)
            finally:
                seen.append("cleaned")

        async def main(loop: Any) -> float:
            task = loop.create_task(late())
            await pause(5)
            assert not task.done()
            return float(loop.time())

        self.assertEqual(run_virtual(main), 5.0)
        self.assertEqual(seen, ["cleaned"])


class TheBudgetGroup(unittest.TestCase):
    """One deadline against a limit each."""

    def test_limits_of_their_own_miss_the_promise_and_one_deadline_does_not(self) -> None:
        """9 s and 0.5 s and 4.5 s are 14 s, and no limit was broken; with one deadline the last tool is not called.

        Claims: I4-011, I4-012.
        """
        apart, together = figures("budget")["chains"]
        self.assertEqual((apart["search"], apart["summarize"], apart["ended_at_ms"]), ("value", "value", 14_000))
        self.assertGreater(apart["ended_at_ms"], figures("budget")["promised_ms"])
        self.assertEqual((together["summarize"], together["ended_at_ms"]), ("not_started", 9500))

    def test_the_refund_has_time_that_the_main_path_could_not_spend(self) -> None:
        """After the time-out the main path is refused and the compensation runs. Claims: I4-023, I4-024."""
        found = figures("budget")
        self.assertEqual(found["main_path_after_its_time"], "not_started")
        self.assertEqual(found["refund_after_its_time"], "value")
        self.assertEqual(found["reserve_after_the_refund_ms"], 2500)

    def test_a_child_outlives_nobody_and_the_reserve_is_taken_once(self) -> None:
        """Main time falls by the second that passes, the lane stays behind it, and nothing is cut a second time.

        Claims: I4-102.
        """
        rows = figures("budget")["children"]
        self.assertEqual([row["main_ms"] for row in rows], [11_000, 10_000, 9000, 2000])
        self.assertEqual([row["compensation_ms"] for row in rows], [15_000, 14_000, 13_000, 12_000])

    def test_every_outcome_is_reached_and_only_one_tool_is_not_called(self) -> None:
        """199 ms are too little and 200 are enough; a late value is known. Claims: I4-015, I4-018, I4-019."""
        rows = figures("budget")["outcomes"]
        self.assertTrue(figures("budget")["every_outcome_was_seen"])
        self.assertEqual([row["budget_ms"] for row in rows if not row["calls"]], [199])
        self.assertEqual(by(rows, "outcome", "timed_out_abandoned")["took_ms"], 1400)
        self.assertEqual(by(rows, "outcome", "tool_error")["left_ms"], 800)
        self.assertTrue(by(rows, "outcome", "late_value")["value_known"])

    def test_time_left_crosses_a_process(self) -> None:
        """Two clocks with other starts, and a second passes there."""
        self.assertEqual(figures("budget")["sent_to_another_process"], {"main_ms": 10_000, "hard_ms": 14_000})
        self.assertEqual(figures("budget")["left_there_a_second_later_ms"], 9000)


class TheInterruptionGroup(unittest.TestCase):
    """Cancels that arrive, also where nobody is yet."""

    def test_the_row_is_there_before_the_message_and_is_enough(self) -> None:
        """The broker is down; the other process knows at its next look. Claims: I4-092, I4-099."""
        found = figures("interruption")
        self.assertTrue(found["row_was_there_when_the_message_was_sent"])
        self.assertFalse(found["message_arrived"])
        self.assertEqual(found["noticed_elsewhere_after_s"], 1.0)

    def test_a_subtree_is_stopped_and_nothing_beside_it(self) -> None:
        """To any depth, what joins later included. Claims: I4-021."""
        after = {row["span"]: (row["after"], row["asked_to_stop"]) for row in figures("interruption")["subtree"]}
        self.assertEqual(after["a"], ("running", False))
        self.assertEqual(after["c"], ("queued", False))
        self.assertEqual(after["d"], ("running", True))
        for span in ("b", "e", "late"):
            self.assertEqual(after[span], ("cancelled", True))

    def test_a_late_child_is_born_cancelled_and_never_run(self) -> None:
        """Registered five milliseconds after the cancel."""
        self.assertEqual(figures("interruption")["late_child_is"], "cancelled")
        self.assertEqual(figures("interruption")["late_child_was_run"], 0)

    def test_who_commits_first_wins(self) -> None:
        """A result is stored exactly when the cancel says that it was too late."""
        for row in figures("interruption")["races"]:
            self.assertEqual(row["result_stored"], row["cancel_says"] == "already done: a")
            self.assertEqual(row["state"], "succeeded" if row["result_stored"] else "cancelled")

    def test_a_compensation_is_registered_once_and_cannot_be_cancelled(self) -> None:
        """Neither it nor what it calls. Claims: I4-094."""
        found = figures("interruption")
        self.assertEqual((found["refunds_asked_for"], found["refunds_registered"]), (3, 1))
        self.assertEqual(set(found["compensations_after_the_cancel"].values()), {"succeeded"})
        self.assertEqual((found["first_run"], found["second_run"]), ("cancelled", "queued"))

    def test_work_in_one_process_stops_at_its_next_look(self) -> None:
        """At most fifty items later, and no step of a download after the cancel. Claims: I4-026, I4-032."""
        found = figures("interruption")
        self.assertEqual((found["cancelled_at_item"], found["stopped_after_items"]), (120, 150))
        self.assertEqual(found["fetched_before_the_cancel"], [0, 8192])
        self.assertEqual((found["clean_up_took_ms"], found["cancel_was_raised_afterwards"]), (500, True))


class TheRetryGroup(unittest.TestCase):
    """What is repeated, and what stops it."""

    def test_the_table_of_effect_and_fault(self) -> None:
        """Not sent: everybody. Unknown: reads, keyed writes, and reversible ones that were not done.

        Claims: C10-196, C10-197.
        """
        for row in figures("retry")["effects"]:
            with self.subTest(row=row):
                repeats = row["fault"] == "not_sent" or (
                    row["fault"] == "unknown"
                    and (
                        row["effect"] in ("read", "keyed_write")
                        or (row["effect"] == "reversible_write" and row["key_and_status"].endswith("not done"))
                    )
                )
                self.assertEqual(row["calls"], 4 if repeats else 1)
                self.assertEqual(row["end"] == "value of then", row["key_and_status"].endswith("says done"))

    def test_layers_do_not_multiply(self) -> None:
        """Three by three by three by hand are 27; in one chain they are 3. Claims: C10-206."""
        self.assertEqual([row["calls"] for row in figures("retry")["layers"]], [27, 3, 3])

    def test_no_wait_exceeds_its_cap(self) -> None:
        """The spread is whole at the cap; with the jitter last it would be half as long again. Claims: I4-073."""
        found = figures("retry")
        self.assertLessEqual(found["longest_of_1000_at_the_cap_ms"], found["cap_ms"])
        self.assertGreater(found["longest_if_the_jitter_came_last_ms"], found["cap_ms"])
        self.assertGreaterEqual(found["spread_at_the_cap_percent"], 99)

    def test_each_question_stops_before_a_wait(self) -> None:
        """The reason is on the real error, and no wait follows the last call."""
        rows = figures("retry")["stops"]
        self.assertEqual(
            [row["stopped_by"] for row in rows],
            ["", "attempts_exhausted", "budget_exhausted", "bucket_empty", "circuit_open"],
        )
        for row in rows:
            self.assertEqual(len(row["waits_ms"]), row["calls"] - 1)
            self.assertEqual(row["took_ms"], sum(row["waits_ms"]))
            self.assertEqual(row["end"], "ConnectFailed" if row["stopped_by"] else "value")

    def test_a_bucket_bounds_all_callers_and_one_key_goes_along(self) -> None:
        """Ten retries for twenty callers. Claims: I4-095."""
        found = figures("retry")
        self.assertEqual((found["calls_with_a_shared_bucket"], found["calls_without_one"]), (30, 80))
        self.assertEqual(found["different_keys_seen_by_the_other_side"], 1)


class TheBreakerGroup(unittest.TestCase):
    """A rate, one probe, and who is to blame."""

    def test_ten_of_a_thousand_and_ten_stay_closed(self) -> None:
        """One per cent; a counter would have opened. Claims: I4-079."""
        row = by(figures("breaker")["opening"], "calls", 1010)
        self.assertEqual((row["failures"], row["state"], row["a_counter_of_10_would_be"]), (10, "closed", "open"))

    def test_the_rate_counts_past_a_minimum_and_within_a_minute(self) -> None:
        """60 % of 20 opens; nine of nine, 49 of 100 and half of 100 over twenty minutes do not. Claims: I4-085."""
        opened = {row["case"] for row in figures("breaker")["opening"] if row["state"] == "open"}
        self.assertEqual(opened, {"the same and one more", "60 % of 20", "half of 100"})

    def test_one_probe_goes_through(self) -> None:
        """One of sixty; a probe that gave up closes nothing. Claims: I4-074, I4-076, I4-080, I4-081."""
        found = figures("breaker")
        self.assertEqual((found["probes_let_through"], found["refused_with_a_hint"]), (1, 59))
        self.assertEqual(found["state_at_exactly_30_s"], "open")
        self.assertEqual(found["after_a_probe_that_gave_up"], "half-open")
        self.assertEqual(found["after_a_probe_that_failed"], "open")
        self.assertEqual(found["after_an_old_probe_came_back"], "half-open")
        self.assertEqual(found["after_a_probe_that_succeeded"], "closed")

    def test_only_the_dependency_is_to_blame(self) -> None:
        """A hundred cancels, remainders and mistakes move nothing."""
        states = [row["state"] for row in figures("breaker")["verdicts"]]
        self.assertEqual(states, ["open", "open", "closed", "closed", "closed"])
        self.assertEqual(figures("breaker")["late_verdicts_dropped"], 2)


class TheIdempotencyGroup(unittest.TestCase):
    """One intent, one effect, or a doubt."""

    def test_the_table_of_keys_and_fingerprints(self) -> None:
        """Replay, conflict, another matter, refusal. Claims: I4-035, I4-041, I4-045, I4-049."""
        answers = [row["answer"] for row in figures("idempotency")["intents"]]
        self.assertEqual(
            answers,
            [
                "charged",
                "replayed",
                "key_conflict",
                "charged",
                "charged",
                "charged",
                "charged",
                "key_conflict",
                "unstable_field",
                "bad_input",
            ],
        )

    def test_a_key_is_that_of_the_intent(self) -> None:
        """Not of the order of its fields, nor of the way an accent is written; true is not 1. Claims: I4-040."""
        found = figures("idempotency")
        self.assertTrue(found["key_in_another_order_is_equal"])
        self.assertTrue(found["key_of_a_composed_accent_is_equal"])
        self.assertFalse(found["true_and_1_are_equal"])

    def test_a_death_before_and_after_the_charge_look_alike(self) -> None:
        """Both become unknown; asking the bank ends the doubt, and no second charge is made. Claims: I4-050."""
        before, after, asked, asked_before, repeatable = figures("idempotency")["crashes"]
        for row in (before, after):
            self.assertEqual((row["during_the_lease"], row["after_the_lease"]), ("in_progress", "unknown"))
            self.assertEqual(row["record_at_the_end"], "unknown")
        for row in (asked, asked_before):
            self.assertEqual((row["record_at_the_end"], row["requests_to_the_bank"]), ("completed", 1))
        self.assertEqual(repeatable["after_the_lease"], "taken, fence 2")
        self.assertEqual((repeatable["requests_to_the_bank"], repeatable["distinct_keys_at_the_bank"]), (2, 1))

    def test_a_late_holder_is_told_and_changes_nothing(self) -> None:
        """Its fence is the old one."""
        found = figures("idempotency")
        self.assertEqual(found["late_holder_is_told"], ["lease_lost", "lease_lost"])
        self.assertEqual((found["fences"], found["value_that_counts"]), ([1, 2], "new"))

    def test_only_what_surely_was_not_done_is_run_again(self) -> None:
        """Of seven ends one frees the key. Claims: I4-047, I4-048."""
        again = [row["ends_by"] for row in figures("idempotency")["ends"] if row["calls"] > 1]
        self.assertEqual(again, ["surely nothing was done"])

    def test_lifetimes_are_twice_the_window(self) -> None:
        """A day and five minutes; a second less is refused. Claims: I4-038, I4-039."""
        found = figures("idempotency")
        self.assertEqual((found["lifetime_of_a_payment_s"], found["lifetime_of_a_query_s"]), (86_400, 300))
        self.assertEqual(found["one_second_less_than_twice_the_window"], "ttl_too_short")


class TheOutboxGroup(unittest.TestCase):
    """Together, in order, at least once."""

    def test_order_and_message_are_there_together(self) -> None:
        """Whichever step dies. Claims: I4-054, I4-061."""
        rows = figures("outbox")["transactions"]
        self.assertEqual([(row["orders"], row["messages"]) for row in rows], [(0, 0), (0, 0), (0, 0), (1, 1)])

    def test_poison_delays_only_itself(self) -> None:
        """Fifty good rows behind a hundred bad ones are out in the second pass. Claims: I4-058, I4-066."""
        found = figures("outbox")
        self.assertEqual((found["good_rows_were_out_after_passes"], found["dead_at_the_end"]), (2, 100))
        self.assertEqual(found["sends_of_poison"], 500)

    def test_a_refund_goes_before_a_later_charge(self) -> None:
        """And after the charge that it undoes; another key does not wait. Claims: I4-064."""
        sent = [row["event"] for row in figures("outbox")["order"] if row["answer"] == "sent"]
        self.assertEqual(sent, ["other", "charge-1", "refund-1", "charge-2"])
        self.assertEqual(figures("outbox")["saga_effects"], ["charge-1", "refund-1", "charge-2"])
        self.assertEqual(figures("outbox")["saga_sends"].count("refund-1"), 2)

    def test_an_outage_is_nobodys_fault(self) -> None:
        """A thousand rows, a minute, ten sends at once and six probes, no attempt spent."""
        found = figures("outbox")
        self.assertEqual(found["sends_during_the_outage"], 16)
        self.assertEqual((found["attempts_that_it_cost_a_row"], found["dead_by_the_outage"]), (0, 0))
        self.assertEqual(found["sent_after_it"], 1000)

    def test_nobody_is_refunded_what_was_never_charged(self) -> None:
        """The refund of a charge that was skipped waits; it follows a replay and is withdrawn with a discard."""
        rows = figures("outbox")["skipped"]
        self.assertEqual([["receipt"], ["receipt"]], [row["sent_before"] for row in rows])
        self.assertEqual([["receipt", "charge", "refund"], ["receipt"]], [row["sent"] for row in rows])
        self.assertEqual(["sent", "withdrawn"], [row["refund_ends"] for row in rows])

    def test_others_that_fail_delay_nobody(self) -> None:
        """One that is gone, twenty that hang, one that kills: fifty get theirs in time; an outage buries none."""
        cases = {line["case"]: line for line in figures("outbox")["others_fail"]}
        self.assertEqual({50}, {line["good_delivered"] for line in cases.values()})
        self.assertEqual({0}, {line["dead"] for line in cases.values()})
        outage = cases.pop("nobody answers for five minutes")
        self.assertEqual("sent", outage["first_row"])
        self.assertLessEqual(max(line["last_after_s"] for line in cases.values()), 22)

    def test_two_deliveries_have_one_effect(self) -> None:
        """The relay died in between. Claims: I4-059, I4-060."""
        self.assertEqual((figures("outbox")["deliveries"], figures("outbox")["effects"]), (2, 1))


class TheMailGroup(unittest.TestCase):
    """The twelfth exercise, counted in the mailbox."""

    def test_a_local_receipt_does_not_prevent_a_second_mail(self) -> None:
        """One receipt, two mails. Claims: C10-240, C10-310."""
        found = figures("mail")
        self.assertEqual((found["receipts_when_plain_retry_died"], found["mails_when_plain_retry_died"]), (1, 2))

    def test_the_table_of_plans_and_faults(self) -> None:
        """Each cell is the number of mails in the mailbox afterwards. Claims: C10-240, C10-310."""
        expected = {
            "none": [1, 1, 1, 1, 1, 1],
            "the service is not reached": [1, 1, 1, 1, 1, 1],
            "the answer is lost": [2, 1, 1, 1, 2, 1],
            "the process dies before the effect": [1, 1, 1, 0, 1, 1],
            "the process dies between effect and record": [2, 1, 1, 1, 2, 1],
            "it dies, and then an answer is lost": [3, 1, 1, 1, 3, 1],
            "the network delivers twice": [2, 1, 2, 2, 2, 1],
            "a cancel before the point of no return": [0, 0, 0, 0, 0, 0],
            "a cancel after it": [1, 1, 1, 1, 1, 1],
        }
        for row in figures("mail")["mails"]:
            with self.subTest(fault=row["fault"]):
                self.assertEqual(list(row.values())[1:], expected[row["fault"]])
        self.assertEqual(len(figures("mail")["mails"]), len(expected))

    def test_two_plans_leave_one_mail_after_every_fault(self) -> None:
        """Both need the service to keep the key. Claims: C10-310."""
        plans = figures("mail")["plans_with_one_mail_after_every_fault"]
        self.assertEqual(plans, ["idempotency_key", "outbox_and_dedupe"])

    def test_a_finished_job_gets_its_mail_whoever_dies(self) -> None:
        """Job and outbox are two databases: the event id is derived, so recording it again is the same row.

        Claims: C10-310.
        """
        found = figures("mail")
        self.assertEqual((found["mails_when_it_died_before_the_outbox"], found["rows_of_two_recordings"]), (1, 1))

    def test_nobody_to_ask_means_a_doubt_and_no_second_mail(self) -> None:
        """The job ends as unknown, whether there is a mail or not. Claims: C10-242, C10-310."""
        for row in figures("mail")["job_says"]:
            doubt = row["fault"].startswith(("the answer", "the process", "it dies"))
            self.assertEqual(row["wait_for_a_person"] == "outcome_unknown", doubt)

    def test_the_outbox_moves_the_point_of_no_return_to_the_commit(self) -> None:
        """A late cancel: six plans have sent one mail, and only two of them say so. Claims: I4-094."""
        row = by(figures("mail")["job_says"], "fault", "a cancel after it")
        says = {plan: row[plan] for plan in row if plan != "fault"}
        self.assertEqual({plan for plan in says if says[plan] == "succeeded"}, {"outbox_alone", "outbox_and_dedupe"})
        self.assertEqual(figures("mail")["mails_when_withdrawn_in_time"], 0)
        self.assertEqual(figures("mail")["withdrawal_after_the_send"], "wrong_status")
        self.assertEqual(figures("mail")["mailbox_after_the_correction"], ["report", "correction"])


if __name__ == "__main__":
    unittest.main()
