"""What the page says, in both languages: the moves, what the store's answers mean, and the rest.

`do VERB` names a move, `do VERB.` says what a move that the store does not see means; `said VERB:ANSWER`, `said ANSWER`
or `said VERB` says what an answer of the store means, and the first that is there is taken. An answer is its JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chapter10.lab.console.strings import Text

__all__ = ["CHALLENGES", "TEXTS"]

TEXTS: Final[Mapping[str, Text]] = {
    "clock": Text("时钟", "clock"),
    "alice": Text("调用方 alice", "caller alice"),
    "mallory": Text("陌生人 mallory", "stranger mallory"),
    "sweeper": Text("清扫者", "sweeper"),
    "worker A": Text("worker A", "worker A"),
    "worker B": Text("worker B", "worker B"),
    "colon": Text("：", ": "),
    "stop": Text("。", ". "),
    "of attempt": Text("（代次 {attempt}）", " (attempt {attempt})"),
    "do tick": Text("时间过一格", "one tick passes"),
    "do tick.": Text("别的什么也没变。", "Nothing else has changed."),
    "do submit": Text("提交", "submit"),
    "do submit another intent": Text("同一个键，另一个意图", "same key, another intent"),
    "do cancel": Text("取消", "cancel"),
    "do look and cancel": Text("来看，也来取消", "look and cancel"),
    "do sweep": Text("清扫", "sweep"),
    "do claim": Text("领取", "claim"),
    "do claim, answer lost": Text("领取，回答丢了", "claim, answer lost"),
    "do freeze": Text("冻住", "freeze"),
    "do freeze.": Text("它停在半路，库不知道。", "It stands still, and the store does not know."),
    "do wake": Text("醒来", "wake"),
    "do wake.": Text("它以为一切照旧。", "It believes that nothing has changed."),
    "do die": Text("进程死掉", "the process dies"),
    "do die.": Text("它领到过什么，没人记得了；库里照旧。",
                    "What it was handed nobody remembers; the store is as it was."),
    "do progress": Text("报进度 {count}/2", "progress {count} of 2"),
    "do finish": Text("交付结果", "finish"),
    "do fail": Text("报失败", "fail"),
    "do retry": Text("报失败，要重试", "fail, to be retried"),
    "do renew": Text("续租", "renew"),
    "said submit": Text("意图已写进库，这是它的号；重复提交得回同一个号。",
                        "The intent is in the store, this is its number; a repeat gets the same one."),
    "said submit another intent": Text("这个键已经是别的意图了，旧结果不能冒充。",
                                       "The key stands for another intent; the old result is not passed off for it."),
    "said claim": Text("这次尝试归它，租约到 {lease}。", "This attempt is its own, with a lease until {lease}."),
    "said claim:null": Text("现在没有可领的；作业是 {state}。", "Nothing to be had now; the job is {state}."),
    "said cancel": Text("作业现在是 {state}；运行中的只是请求。",
                        "The job is {state} now; of a running one it is a request."),
    "said look and cancel": Text("陌生人什么也没看到，什么也没改。", "The stranger saw nothing and changed nothing."),
    "said sweep": Text("谁也做不了的作业到此为止：{state}，{error}。",
                       "What nobody could run has ended: {state}, {error}."),
    "said sweep:{}": Text("没有什么要了结。", "There was nothing to end."),
    "said progress:true": Text("记下了，接着做。", "Noted; go on."),
    "said progress:false": Text("别再做了：作业是 {state}。", "Stop: the job is {state}."),
    "said finish:true": Text("结果和回执一起存下，作业成功。",
                             "Result and receipt are stored together; the job has succeeded."),
    "said finish:false": Text("没有再存什么：作业是 {state}。", "Nothing more was stored: the job is {state}."),
    "said fail": Text("作业现在是 {state}。", "The job is {state} now."),
    "said retry": Text("作业现在是 {state}，{ready} 起可再领取。",
                       "The job is {state} now, to be had from {ready} on."),
    "said renew": Text("作业是 {state}，租约到 {lease}。", "The job is {state}, the lease ends at {lease}."),
    'said "stale_attempt"': Text("这一代次已经不是最新，晚到的写不进来。",
                                 "This attempt is no longer the newest; what comes late is refused."),
    'said "lease_expired"': Text("租约已到期，无权再写。", "The lease is over, and with it the right to write."),
    'said "not_running"': Text("现在没有谁持有这份作业。", "Nobody holds the job now."),
    'said "invalid_progress"': Text("同一次尝试里进度不后退。", "Within an attempt progress does not go back."),
    'said "key_conflict"': Text("这个键已经是别的意图了，旧结果不能冒充。",
                                "The key stands for another intent; the old result is not passed off for it."),
    "said ": Text("这个回答它从未声明过：只剩数据库自己的约束挡着。",
                  "An answer that it never declared: only a constraint of the database stood in the way."),
    "begin": Text("库是空的。挑一个动作。", "The store is empty. Choose a move."),
    "broke": Text("承诺 {promise} 破了。", " Promise {promise} is broken."),
    "is broken": Text("破了", "broken"),
    "met": Text("挑战 {challenge} 完成：{steps} 步，已知最短 {shortest} 步。",
                " Challenge {challenge} is done in {steps} moves; the shortest known is {shortest}."),
    "unrecorded": Text("再往下没有记录", "not recorded any further"),
    "time": Text("时刻 {now}", "time {now}"),
    "no lease": Text("；没有租约", "; no lease"),
    "lease": Text("；租约到 {lease}，还剩 {left}", "; the lease ends at {lease}, {left} left"),
    "lease over": Text("；租约在 {lease} 已到期", "; the lease ended at {lease}"),
    "deadline": Text("；截止时间 {deadline}", "; the deadline is {deadline}"),
    "whole": Text("防护齐全：每一步都守住全部承诺。", "Every guard is in place: each promise holds at each step."),
}  # fmt: skip
"""What the script says."""

CHALLENGES: Final[tuple[Text, ...]] = (
    Text(
        "交付两次：成功之后，让结果再交付一次。",
        "Deliver twice: once it has succeeded, let a result be delivered again.",
    ),
    Text("取消之后仍然交付成功。", "Finish after a cancel: let a job succeed that was asked to stop."),
    Text("让晚到的旧 worker 赢。", "Let a late worker win: its result is kept although another has the job."),
)
"""The challenges."""
