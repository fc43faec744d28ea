"""What a reader guesses about effects: one intent, one effect, what the outbox sends, a mail after the report.

One `Area` for each of these groups of the companions, written with `lab.guessing.areas`. Each question names the
claims that it is about, so that the claim map leads from there to every test.

Source: the document on idempotency and interruption (claims I4-035, I4-050, I4-060), and the chapter on its
receipt and the mail after the report (claims C10-240, C10-310).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chapter10.companions.effects.idempotency import IdempotencyStore
from chapter10.companions.effects.inbox import Consumer
from chapter10.companions.effects.intent_records import IntentRecords
from chapter10.companions.effects.outbox_rows import Outbox
from chapter10.companions.effects.relay import Relay
from chapter10.jobs import JobStore
from chapter10.lab.guessing.areas import area, at, question
from chapter10.lab.guessing.predict import Area

__all__ = ["AREAS"]

_I4: Final = ("幂等与中断文档", "the document on idempotency and interruption")
_C10: Final = ("本章", "the chapter")

_RECEIPT: Final = ("一份回执为什么只能在明确的事务边界内成立", "One receipt within a clear transaction")
_EXERCISES: Final = ("分层练习与参考答案", "Exercises and answers")
_PROCESSES: Final = ("八、跨进程的中断传播", "8 Interrupts across processes")
_KEY: Final = ("五、幂等性设计", "5 Designing the key")
_OUTBOX: Final = ("六、exactly-once 的工程妥协", "6 The outbox")


def _after_the_crash(result: Any) -> list[int]:
    """Mails and receipts when the process died after the mail and the job was run again."""
    return [result["mails_when_plain_retry_died"], result["receipts_when_plain_retry_died"]]


_ALL: Final = (
    area(
        "idempotency",
        ("幂等", "one intent, one effect"),
        (
            "alice 用键 order-7 付 1000；同样的请求再来一次。\n"
            "然后是同一个键，金额却是 2000；还有 bob，也用 order-7。\n"
            "另一次：进程死在扣款之后、记录之前，租约 30 秒。\n"
            "有时银行可以查询，有时没有人可问。",
            "alice pays 1000 under the key order-7; the same request comes again.\n"
            "Then the same key comes with 2000, and bob uses order-7 as well.\n"
            "Another time the process dies after the charge and before its record; the lease is 30 s.\n"
            "Sometimes the bank can be asked, sometimes nobody can.",
        ),
        (IdempotencyStore.execute_once, IntentRecords.claim),
        (
            question(
                "conflict",
                (
                    "同一个键，金额从 1000 变成 2000。得到什么？",
                    "The same key, with 2000 instead of 1000. What comes back?",
                ),
                "intents.2.answer",
                (
                    ("charged", "再扣 2000", "another charge, of 2000"),
                    ("replayed", "第一次的结果", "the result of the first time"),
                    ("key_conflict", "key_conflict，什么也没做", "key_conflict, and nothing is done"),
                ),
                (
                    "同键同参数是重复，给回第一次的结果；同键不同参数是写错了，不能猜。\n"
                    "当成重复，alice 会以为付了 2000；当成新的，键就白带了。",
                    "Same key and arguments is a repetition; the same key with others is a mistake, and not\n"
                    "to be guessed. As a repetition alice would believe 2000 paid; as a new one the key is useless.",
                ),
                at(_I4, _KEY, "I4-035", "I4-045"),
                IdempotencyStore.execute_once,
                "test_idempotency.KeyTest.test_same_key_with_other_arguments_is_a_conflict_in_every_state",
                also=("intents.1.answer", "intents.4.answer"),
            ),
            question(
                "doubt",
                (
                    "扣了款，没记录就死了，也没有人可问。租约过后，记录是什么？",
                    "Charged, dead before the record, nobody to ask. What is the record after the lease?",
                ),
                "crashes.1.record_at_the_end",
                (
                    ("completed", "completed：下一个接手，再扣一次", "completed: the next one charges again"),
                    ("failed_final", "failed_final：没有成功", "failed_final: it did not succeed"),
                    ("unknown", "unknown", "unknown"),
                ),
                (
                    "从库里看，扣款之前死和之后死一模一样；猜哪一边，都有一半的时候是错的。\n"
                    "所以如实说不知道，等查询或者人来定；能查询的那次，同样的故障以 completed 结束。",
                    "From the record a death before the charge and one after it look alike; any guess is wrong half\n"
                    "the time. So it is unknown until a query or a person decides; with a query it ends as completed.",
                ),
                at(_I4, _KEY, "I4-050"),
                IntentRecords.claim,
                "test_resilience_scenes.TheIdempotencyGroup.test_a_death_before_and_after_the_charge_look_alike",
                also=("crashes.0.record_at_the_end", "crashes.2.record_at_the_end", "crashes.1.requests_to_the_bank"),
            ),
        ),
        (
            '_PAY | {"amount_cents": 2000}',
            '_PAY | {"amount_cents": 1000}',
            "金额也相同：这一行变成什么？",
            "Now the amount is the same too: what becomes of that row?",
        ),
        (
            "dies between charge and record, nobody can ask",
            "the same, and the bank can be asked",
            "a late holder",
        ),
    ),
    area(
        "outbox",
        ("发件箱", "the outbox"),
        (
            "订单和它的消息写进同一个数据库；之后由投递者发出去。\n"
            "进程死在写完订单、还没写消息的时候。\n"
            "投递者死在发出之后、标记之前；另一个投递者接手。\n"
            "还有 100 条谁也不肯收的毒消息，排在 50 条好消息前面。",
            "An order and its message go into the same database; a relay sends the message later.\n"
            "The process dies after the order and before the message.\n"
            "A relay dies after sending and before its mark; another one takes over.\n"
            "And 100 poison messages that nobody takes stand before 50 good ones.",
        ),
        (Outbox.record, Relay.run_pass, Consumer.handle),
        (
            question(
                "between",
                ("死在两者之间。重启之后，库里有什么？", "Dead between the two. What is in the database afterwards?"),
                lambda result: [result["transactions"][1]["orders"], result["transactions"][1]["messages"]],
                (
                    ([0, 0], "什么也没有", "nothing"),
                    ([1, 0], "有订单，没有消息", "the order, without its message"),
                    ([1, 1], "都有：重启时补上", "both: the restart makes up for it"),
                ),
                (
                    "一个事务，要么都有，要么都没有；没有哪一刻是有订单而没有消息的。\n"
                    "先写订单再直接发消息，就做不到：两个系统没有共同的事务。",
                    "One transaction: both or neither, and at no moment an order without its message.\n"
                    "An order and then a send cannot do that: two systems share no transaction.",
                ),
                at(_I4, _OUTBOX, "I4-054", "I4-061"),
                Outbox.record,
                "test_outbox.RecordTest.test_a_failure_at_any_step_leaves_neither",
                also=("transactions.1.dies", "transactions.1.orders", "transactions.1.messages"),
            ),
            question(
                "twice",
                (
                    "死在发出之后、标记之前。送达几次，效果几次？",
                    "Dead after sending. How many deliveries and effects?",
                ),
                lambda result: [result["deliveries"], result["effects"]],
                (
                    ([1, 1], "送达 1 次，效果 1 次", "one delivery, one effect"),
                    ([2, 1], "送达 2 次，效果 1 次", "two deliveries, one effect"),
                    ([2, 2], "送达 2 次，效果 2 次", "two deliveries, two effects"),
                ),
                (
                    "没有标记，就只能再发：发送方能做到的是至少一次。\n"
                    "去重在接收方：记住事件号，和效果写在同一个事务里。",
                    "Without its mark it is sent again: a sender can do no better than at least once.\n"
                    "The receiver drops the second: it remembers the event in the transaction of its effect.",
                ),
                at(_I4, _OUTBOX, "I4-059", "I4-060"),
                Consumer.handle,
                "test_outbox.ConsumerTest.test_a_duplicate_has_no_second_effect",
                also=("deliveries", "effects"),
            ),
            question(
                "poison",
                (
                    "每一趟最多取 100 条。50 条好消息第几趟才发完？",
                    "A pass takes 100 rows at most. In which pass are the 50 good messages out?",
                ),
                "good_rows_were_out_after_passes",
                (
                    (2, "第 2 趟", "in the second"),
                    (6, "第 6 趟：毒消息试满 5 次之后", "in the sixth: when the poison has had its 5 tries"),
                    (None, "永远发不出去", "never"),
                ),
                (
                    "被拒绝的要隔一段时间才再试，间隔越来越长，第 2 趟它们不在队里。\n"
                    "试满 5 次就进死信，等人处理；好消息不为坏消息付账。",
                    "What was refused waits, longer each time, and is not in line in the second pass.\n"
                    "After 5 tries it is a dead letter for people to look at; the good do not pay for the bad.",
                ),
                at(_I4, _OUTBOX, "I4-058", "I4-066"),
                Relay.run_pass,
                "test_outbox.RelayTest.test_poison_does_not_hold_up_the_healthy",
                also=("sends_of_poison", "dead_at_the_end", "seconds_until_all_were_dead"),
            ),
        ),
        (
            "_MAX_ATTEMPTS: Final = 5",
            "_MAX_ATTEMPTS: Final = 2",
            "试两次就放弃：毒消息一共发几次，多久全进死信？好消息呢？",
            "Two tries and no more: how often is poison sent, and when is all of it dead? And the good ones?",
        ),
        ("a hundred poison rows in front", "a relay dies between sending and its mark"),
    ),
    area(
        "mail",
        ("报表之后发邮件", "a mail after the report"),
        (
            "练习 12 的情形：先生成报表，再发一封邮件。\n"
            "六种方案，各遇到九种情形：没有故障、回答丢失、进程死掉……\n"
            "作业库保证一份作业只有一份回执。邮件服务是另一个系统。\n"
            "最要紧的一种：邮件发出了，进程死在记录之前。",
            "It is the case of exercise 12: first the report, then a mail about it.\n"
            "Six plans meet nine situations: no fault, a lost answer, a dead process, and so on.\n"
            "The job store keeps one receipt for a job. The mail service is another system.\n"
            "The one that matters most: the mail is out, and the process dies before its record.",
        ),
        (JobStore.finish, Outbox.record, Outbox.withdraw),
        (
            question(
                "plain",
                (
                    "只靠唯一的回执，死了重跑。几封邮件，几份回执？",
                    "With the one receipt alone, dead and run again: how many mails and receipts?",
                ),
                _after_the_crash,
                (
                    ([1, 0], "1 封，0 份", "one mail, no receipt"),
                    ([1, 1], "1 封，1 份", "one mail, one receipt"),
                    ([2, 1], "2 封，1 份", "two mails, one receipt"),
                    ([2, 2], "2 封，2 份", "two mails, two receipts"),
                ),
                (
                    "回执在本地事务里，所以只有一份；邮件在事务之外，发了就收不回。\n本地的约束管不住另一个系统。",
                    "The receipt is inside the local transaction, and there is one; the mail is outside and gone.\n"
                    "A constraint here binds nobody elsewhere.",
                ),
                at(_C10, _RECEIPT, "C10-240"),
                JobStore.finish,
                "test_resilience_scenes.TheMailGroup.test_a_local_receipt_does_not_prevent_a_second_mail",
                also=("mails_when_plain_retry_died", "receipts_when_plain_retry_died"),
            ),
            question(
                "plans",
                ("哪些方案在每种故障下都恰好一封？", "Which plans give exactly one mail after every fault?"),
                "plans_with_one_mail_after_every_fault",
                (
                    ([], "没有哪一种", "none"),
                    (["outbox_alone", "outbox_and_dedupe"], "有发件箱的两种", "the two with an outbox"),
                    (
                        ["idempotency_key", "outbox_and_dedupe"],
                        "邮件服务自己认得重复的两种",
                        "the two in which the mail service knows a repetition",
                    ),
                    (
                        ["idempotency_key", "status_query", "outbox_and_dedupe"],
                        "这两种，再加上先查询的一种",
                        "those, and the one that asks first",
                    ),
                ),
                (
                    "发件箱保证不漏，不保证不重；重复只有收的一方能去掉。\n"
                    "先查询也不够：网络自己送达两次，问的时候看不出来。",
                    "An outbox loses nothing but may repeat; only who receives can drop a repetition.\n"
                    "To ask first is not enough: when the network delivers twice, a question does not see it.",
                ),
                at(_C10, _EXERCISES, "C10-310"),
                Outbox.record,
                "test_resilience_scenes.TheMailGroup.test_two_plans_leave_one_mail_after_every_fault",
                also=("mails.6.fault", "mails.6.status_query", "mails.6.outbox_alone", "mails.6.outbox_and_dedupe"),
            ),
            question(
                "withdrawn",
                (
                    "有发件箱，作业已成功，邮件还没有发。还能不发吗？",
                    "With an outbox the job has succeeded and the mail still waits. Can it be kept back?",
                ),
                "mails_when_withdrawn_in_time",
                (
                    (0, "能，作业仍然是 succeeded", "yes, and the job is still succeeded"),
                    (1, "不能：作业成功，邮件就一定会发", "no: the job succeeded, so the mail will go"),
                ),
                (
                    "没发的行可以撤回；作业的终态不变，报表就在那里。\n"
                    "发出之后就不行了，只能再发一封更正，问三次也只有一封。",
                    "A row that waits can be withdrawn; the job's final state stays, as the report is there.\n"
                    "Once it is sent there is only a correction: asked for three times, sent once.",
                ),
                at(_I4, _PROCESSES, "I4-094"),
                Outbox.withdraw,
                "test_outbox.OrderTest.test_a_pending_row_is_withdrawn_and_a_claimed_or_sent_one_is_not",
                also=("job_when_withdrawn", "withdrawal_after_the_send", "mailbox_after_the_correction"),
            ),
        ),
        (
            "_MAX_ROUNDS: Final = 6",
            "_MAX_ROUNDS: Final = 1",
            "死了就没有人再来：还有哪种方案每次都恰好一封？再写下自己的设计：练习 12。",
            "Nobody comes after a death: which plan still gives one mail each time? Then write a design of your "
            "own: exercise 12.",
        ),
        (
            "plain retry: it dies after the mail",
            "the same fault, outbox and dedupe",
            "committed and not yet sent: taken back",
        ),
    ),
)

AREAS: Final[Mapping[str, Area]] = {one.name: one for one in _ALL}
"""The areas of the groups about effects, by the name of the group."""
