"""What the jobs command says to a person, in Chinese and in English: one table, by the id that the code uses.

Names stay as they are in both: states, kinds, codes, keys, the figures of a count, and whatever came from outside.
Source: what the chapter tells a person; see `status`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from chapter10.lab.console.strings import Text

__all__ = ["WORDS", "Say", "speaker"]

Say = Callable[..., str]
"""`say(id, **values)`: a sentence of the table in the language of this person."""


def speaker(language: str) -> Say:
    """Return what says the sentences of the table in `language`, `zh` or `en`."""

    def say(sentence: str, /, **values: object) -> str:
        return WORDS[sentence].in_language(language, **values)

    return say


WORDS: Final[Mapping[str, Text]] = {
    # A job, its events, a bar
    "job": Text(
        "作业 {id}：{state}{error}，第 {attempt} 次尝试，{done}/{total}",
        "job {id}: {state}{error}, attempt {attempt}, {done}/{total}",
    ),
    "job.whose": Text("所有者 {owner}，{kind}，键 {key}", "owner {owner}, {kind}, key {key}"),
    "job.submitted": Text("提交 {at}", "submitted {at}"),
    "job.started": Text("开始 {at}", "started {at}"),
    "job.ended": Text("结束 {at}", "ended {at}"),
    "job.deadline": Text("截止 {at}", "deadline {at}"),
    "event": Text("{seq:>6}  第 {attempt} 次尝试  {kind}{said}", "{seq:>6}  attempt {attempt}  {kind}{said}"),
    "event.again": Text("（再做一次作业 {job}，{by} 要求：{why}）", "(once more for job {job}, by {by}: {why})"),
    "bar": Text(
        "[{bar}] {percent:>3}%  {done}/{total}  第 {attempt} 次尝试",
        "[{bar}] {percent:>3}%  {done}/{total}  attempt {attempt}",
    ),
    # How a job stands, in one sentence (see `status`)
    "is.queued": Text("已受理，等待处理", "accepted, and waiting"),
    "is.queued.again": Text(
        "第{attempt}次尝试没有成功，等待下一次尝试", "attempt {attempt} did not succeed; the next one is waited for"
    ),
    "is.queued.left": Text(
        "暂时没有等到结果，作业仍在排队，可以稍后查看", "no result yet; the job is still in line, look again later"
    ),
    "is.running": Text("第{attempt}次尝试，已处理{done}条", "attempt {attempt}, done so far: {done}"),
    "is.running.left": Text(
        "暂时没有等到结果，作业仍在运行，可以稍后查看", "no result yet; the job is still at work, look again later"
    ),
    "is.cancel_requested": Text(
        "第{attempt}次尝试，已请求取消，等待确认停止", "attempt {attempt} is asked to stop; that it has is waited for"
    ),
    "is.succeeded": Text("已完成，可以读取结果", "done, and the result can be read"),
    "is.cancelled": Text("已确认取消，未提交本地结果", "cancelled for certain; no result was stored here"),
    "is.failed": Text("作业失败，错误代码 {error}", "the job failed with the code {error}"),
    "is.failed.deadline_exceeded": Text(
        "作业已超过截止时间，未提交本地结果", "the job is past its deadline; no result was stored here"
    ),
    "is.failed.attempts_exhausted": Text(
        "允许的尝试次数已用完，未提交本地结果", "the job has had all its attempts; no result was stored here"
    ),
    # The caller
    "submit.key": Text("{job}，键 {key}", "{job}, key {key}"),
    "submit.earlier": Text("同样的内容以前要求过：{job}", "the same content was asked for before: {job}"),
    "submit.dead": Text(
        "没有受理新的作业；用 `retry {id}` 再做一次，输入改过了就换一个键提交",
        "nothing new was accepted; `retry {id}` or, where the input was mended, another key tries once more",
    ),
    "submit.one": Text("作业 {id}：{state}，键 {key}", "job {id}: {state}, key {key}"),
    "watch.busy": Text("作业库正忙，再问一次", "the store is busy, asking again"),
    "watch.left": Text("作业还在进行；用 --after {seq} 接着看", "the job goes on; read on with --after {seq}"),
    "cancel": Text("作业 {id}：{state}", "job {id}: {state}"),
    "cancel.late": Text(
        "作业 {id}：{state}；它早已结束，什么都没有改变",
        "job {id}: {state}; it had ended before, and nothing was changed",
    ),
    "result.rows": Text("{month}：{rows} 行，合计 {cents} 分", "{month}: {rows} rows, {cents} cents"),
    "result.table": Text(
        "按 {by}：{rows} 行，{file}  sha256 {sha256}", "by {by}: {rows} lines, {file}  sha256 {sha256}"
    ),
    # The worker
    "note": Text("作业 {job} 第 {attempt} 次尝试：{said}", "job {job} attempt {attempt}: {said}"),
    # The operator
    "retry": Text("作业 {again} 再做一次作业 {job} 要做的事", "job {again} does once more what job {job} was to do"),
    "prune.count": Text("已删除 {name}：{count}", "{name} removed: {count}"),
    "prune.room": Text(
        "文件保持原来的大小，留给以后用；`compact` 把空间还给磁盘",
        "the file keeps its size for what comes; `compact` gives the room back",
    ),
    "compact": Text("之前 {before} 字节，之后 {after} 字节", "{before} bytes before, {after} after"),
    "backup": Text("{file}：{bytes} 字节", "{file}: {bytes} bytes"),
    "backup.tables": Text("报表不在备份里；它们在 {folder}", "the tables are not in it; they lie in {folder}"),
    "release": Text("作业 {id} 现在就可以领取", "job {id} is due now"),
    "release.none": Text("作业 {id} 并没有在等；什么都没有改变", "job {id} was not waiting; nothing was changed"),
    "everybody": Text("所有人", "everybody"),
    "owner": Text("所有者 {owner}", "owner {owner}"),
    "pause": Text("{who}：已暂停，不再开始新的作业", "{who}: paused: nothing more is begun"),
    "resume": Text("{who}：已恢复", "{who}: resumed"),
    "pause.already": Text("{who}：本来就是这样", "{who}: was so already"),
    "top.head": Text(
        "queued {queued}，running {running}，expired {expired}，最长等待 {wait}",
        "queued {queued}, running {running}, expired {expired}, longest wait {wait}",
    ),
    "top.running": Text("正在运行", "running"),
    "top.failed": Text("最近失败", "failed last"),
    "top.since": Text("已运行 {age}", "for {age}"),
    "top.key": Text("{owner}，键 {key}", "{owner}, key {key}"),
    "top.ago": Text("{age} 之前", "{age} ago"),
    "age.d": Text("{count} 天", "{count} d"),
    "age.h": Text("{count} 小时", "{count} h"),
    "age.min": Text("{count} 分钟", "{count} min"),
    "age.s": Text("{count} 秒", "{count} s"),
    "stats.figure": Text("{name}：{value}", "{name}: {value}"),
    "stats.kind": Text(
        "类型 {kind} {version}：{live} 份中有 {queued} 份在等", "kind {kind} {version}: {queued} of {live} wait"
    ),
    "stats.paused": Text("已暂停：{who}", "paused: {who}"),
    "stats.refused": Text(
        "被拒绝，所有者 {owner}：{verb} {code} {count}", "refused, owner {owner}: {verb} {code} {count}"
    ),
    # Help
    "help": Text(
        "比请求活得更久的工作：提交、完成、查看。",
        "Work that outlives the request: submit it, have it done, watch it.",
    ),
    "help.help": Text("显示这份说明", "show this help and leave"),
    "help.lang": Text("对人说话用的语言", "the language of what is said to a person"),
    "help.submit": Text(
        "受理一份销售文件某月的导出，或你的一个任务",
        "accept an export of one month of a sales file, or a task of yours",
    ),
    "help.work": Text("做作业，直到 SIGTERM 或 Ctrl-C", "do jobs until SIGTERM or Ctrl-C"),
    "help.status": Text("一份作业在做什么", "what a job is doing"),
    "help.watch": Text("显示一份作业的事件，直到它结束", "show a job's events until it ends"),
    "help.events": Text("一份作业在游标之后的事件", "a job's events after a cursor"),
    "help.cancel": Text("请求停止一份作业", "ask for a job to be stopped"),
    "help.result": Text("成功的作业的结果", "the result of a job that succeeded"),
    "help.list": Text("一个所有者的作业，新的在前", "an owner's jobs, newest first"),
    "help.retry": Text(
        "把失败或取消的作业原样再做一次，作为新作业",
        "do once more what a dead job was to do, with the same input, as a new job",
    ),
    "help.sweep": Text("了结谁也做不了的作业", "end the jobs that nobody can run any more"),
    "help.prune": Text("删除旧的结果、键和报表", "remove old results, keys and tables"),
    "help.compact": Text("把删掉的空间还给磁盘", "give the room of what was pruned back to the disk"),
    "help.backup": Text("别人照常工作时，把作业库复制到新文件", "copy the store to a new file while others work"),
    "help.release": Text(
        "时钟往回拨之后，让一份在等的作业现在就可领取",
        "let a job that waits be due now, after a clock was set back",
    ),
    "help.pause": Text("不让任何 worker 开始新作业；在做的继续", "let no worker begin a job; what runs goes on"),
    "help.resume": Text("撤回一次暂停", "take a pause back"),
    "help.top": Text(
        "一屏：在等的、在做的和做了多少、最近失败的",
        "one screen: what waits, what runs and how far, what failed last",
    ),
    "help.stats": Text(
        "按所有者：未了结的工作、等待、过期租约、被拒绝的交付",
        "live work, waits, expired leases and refused deliveries, per owner",
    ),
    "help.db": Text("作业库文件（默认在你的数据文件夹里）", "the store's file (default: in your data folder)"),
    "help.json": Text("用 JSON 回答", "answer in JSON"),
    "help.owner": Text("可信的身份，不再核对（默认 local）", "a trusted identity; it is believed (default: local)"),
    "help.job": Text("作业号", "the job's number"),
    "help.within": Text("从现在起的秒数（默认一天）", "seconds from now (default a day)"),
    "help.max_attempts": Text("连同第一次（默认 30，见 work）", "the first included (default 30: see work)"),
    "help.capacity": Text("所有人未了结的作业上限（默认 {most}）", "the most live jobs of all owners (default {most})"),
    "help.owner_capacity": Text(
        "这个所有者未了结的作业上限（默认不单独限制）", "the most live jobs of this owner (default: no own limit)"
    ),
    "help.handlers": Text("你的 Python 模块，里面有任务", "a Python module of yours with tasks"),
    "help.month": Text("导出的月份：YYYY-MM", "of an export: YYYY-MM"),
    "help.sales": Text(
        "导出用的 CSV：order_id,month,amount_cents，可以有 day,product",
        "of an export: a CSV with order_id,month,amount_cents and perhaps day,product",
    ),
    "help.kind": Text("不做导出，做 --handlers 里的这个任务", "a task of --handlers instead of an export"),
    "help.args": Text("任务的参数，一个 JSON 对象", "the arguments of the task, a JSON object"),
    "help.from": Text(
        '很多份：每行一个 JSON 对象，含 "key" 和 "month"、"sales" 或 "args"；要么全收，要么全不收',
        'many: a JSON object a line, with "key" and "month", "sales" or "args"; all are taken or none',
    ),
    "help.start_in": Text("多少秒之内谁也不开始做（默认 0）", "seconds before which nobody begins it (default 0)"),
    "help.key": Text(
        "给意图起的名字；答复丢了就用它重发（默认起新的）",
        "names the intent; repeat it after a lost answer (default: a new one)",
    ),
    "help.concurrency": Text("worker 数，各是一个进程（默认 1）", "so many workers, a process each (default 1)"),
    "help.lease": Text("领取和续租的秒数（默认 10）", "seconds of a claim and of a renewal (default 10)"),
    "help.grace": Text("被请走后还有多少秒（默认 10）", "seconds to leave in when asked (default 10)"),
    "help.work_poll": Text("空闲时隔多少秒看一次（默认 0.05）", "seconds between two looks when idle (default 0.05)"),
    "help.attempt_limit": Text(
        "一次尝试最多多少秒（默认不单独限制）", "the most seconds of one attempt (default: no own limit)"
    ),
    "help.retry_base": Text("第二次尝试之前等多少秒（默认 1）", "seconds before the second attempt (default 1)"),
    "help.retry_cap": Text(
        "这样的等待最长多少秒；每次加倍（默认 60）", "the longest such pause; it doubles (default 60)"
    ),
    "help.retry_age": Text(
        "提交多少秒之后，出错就不再重试（默认不限）",
        "seconds since the submission after which an error is final (default: none)",
    ),
    "help.jobs": Text("做这么多次尝试之后离开", "leave after so many attempts"),
    "help.drain": Text(
        "没有未了结的作业时离开；有失败的则退出码为 1",
        "leave when no job is live any more; 1 if any has failed",
    ),
    "help.results": Text("放报表的文件夹（默认在作业库旁）", "the folder of the tables (default: beside the store)"),
    "help.inputs": Text(
        "销售文件必须在这个文件夹里（默认任何地方）", "the folder that sales files must lie in (default: anywhere)"
    ),
    "help.name": Text(
        "日志里怎样称呼这个 worker（默认 worker- 加进程号）",
        "how the log calls this worker (default: worker- and the process id)",
    ),
    "help.pace": Text("每一步等多少秒，给看的人", "seconds to wait at each step, for whoever watches"),
    "help.after": Text("你已有的最后一个事件的 seq", "the seq of the last event that you have"),
    "help.timeout": Text("你最多等多少秒；作业并不知道", "seconds of your patience; the job does not learn of it"),
    "help.watch_poll": Text("隔多少秒看一次（默认 0.2）", "seconds between two looks (default 0.2)"),
    "help.events_limit": Text("最多多少个事件（默认 100）", "the most events (default 100)"),
    "help.table": Text("校验之后打印这张报表", "print this table, after checking it"),
    "help.all": Text("所有人的，给运维看", "of every owner, for an operator"),
    "help.state": Text("只要这个状态的", "only jobs in this state"),
    "help.list_kind": Text("只要这个操作的，如 sales.export", "only jobs of this operation, such as sales.export"),
    "help.since": Text("只要最近这么多秒里提交的", "only jobs submitted in the last so many seconds"),
    "help.before": Text("只要号码更小的", "only jobs with a smaller number"),
    "help.list_limit": Text("最多多少份（默认 50）", "the most jobs (default 50)"),
    "help.by": Text("谁要求的，写进日志（默认 operator）", "who asks, for the log (default: operator)"),
    "help.why": Text("为什么，写进日志", "why, for the log"),
    "help.sweep_limit": Text("最多多少份（默认 100）", "the most jobs (default 100)"),
    "help.results_older": Text("结束多少秒之后（默认 7 天）", "seconds since the end (default 7 days)"),
    "help.keys_older": Text("结束多少秒之后（默认 30 天）", "seconds since the end (default 30 days)"),
    "help.prune_limit": Text("一个事务最多多少行（默认 100）", "the most rows of one transaction (default 100)"),
    "help.file": Text(
        "备份文件，事先不能存在；它和原来的一样是作业库",
        "the copy, which must not be there yet; a store like the first",
    ),
    "help.only": Text("只管这个所有者（默认所有人）", "of one owner (default: of all)"),
    "help.every": Text("隔多少秒看一次（默认 1）", "seconds between two looks (default 1)"),
    "help.once": Text("只打印一次；不是终端时本来就这样", "print it once; so it is anyway where no terminal is"),
    # What a refusal is, before its reason
    "error.not_found": Text("没有这份作业，或不属于这个所有者", "no such job of this owner"),
    "error.not_ready": Text("还没有结果", "there is no result yet"),
    "error.result_expired": Text("结果已按规定删除", "the result was removed by rule"),
    "error.not_dead": Text("只有失败或取消的才能再做一次", "only what failed or was cancelled is done once more"),
    "error.key_conflict": Text(
        "这个键已经代表另一个意图，请换一个键", "the key stands for another intent; take another key"
    ),
    "error.queue_full": Text("队列没有位置了", "there is no place in the queue"),
    "error.owner_full": Text("这个所有者没有位置了", "there is no place for this owner"),
    "error.invalid_submission": Text("提交的内容不对", "this cannot be submitted"),
    "error.bad_input": Text("输入不对", "this cannot be taken"),
    "error.store_busy": Text("作业库一直被别的进程占用，可以再试", "another process kept the store; try again"),
    "error.store_unavailable": Text("作业库不能用", "the store cannot be used"),
}
"""The sentences by id; `error.CODE` says in plain words what a code means."""
